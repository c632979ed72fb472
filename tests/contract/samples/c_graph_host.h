// SPDX-License-Identifier: Apache-2.0
/* A host in C with the sample plug-ins blur and merge. */
#ifndef CTXB_TESTS_C_GRAPH_HOST_H
#define CTXB_TESTS_C_GRAPH_HOST_H

#ifdef __cplusplus
extern "C" {
#endif

/* Returns 0 if all went well. Otherwise stderr says what did not. */
int c_graph_host(const char* plugin_folder);

#ifdef __cplusplus
}
#endif
#endif
