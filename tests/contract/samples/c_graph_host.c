// SPDX-License-Identifier: Apache-2.0
/* A whole host in C11. It blurs one picture, puts another one over it in the same graph, and
 * compares the result with what C computes from the blurred picture alone. */
#include "c_graph_host.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctxbroker/host.h"

enum { width = 61, height = 37, samples = width * height * 4, jobs = 3 };

/* Everything that the host has to end, in this order. Null: it does not exist. */
typedef struct Host {
  ctxb_graph* merging;
  ctxb_graph* blurring;
  ctxb_instance* blur;
  ctxb_instance* merge;
  ctxb_plugin_library* blur_library;
  ctxb_plugin_library* merge_library;
  ctxb_broker* broker;
} Host;

static int failed(const char* what) {
  fprintf(stderr, "c_graph_host: %s: %s\n", what, ctxb_last_error());
  return 1;
}

static int load(Host* host, const char* folder, const char* name, ctxb_plugin_library** library,
                ctxb_instance** instance) {
  static const ctxb_activation_sizes sizes = {sizeof sizes, width, height, 0, 0};
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.so", folder, name);
  if (ctxb_plugin_library_load(host->broker, path, library) != CTXB_OK) return failed(path);
  if (ctxb_instance_create(host->broker, *library, name, NULL, instance) != CTXB_OK) {
    return failed(name);
  }
  return ctxb_instance_activate(*instance, &sizes) == CTXB_OK ? 0 : failed(name);
}

static int connect(Host* host) {
  const ctxb_graph_port inputs[] = {{.size = sizeof(ctxb_graph_port), .name = "front"},
                                    {.size = sizeof(ctxb_graph_port), .name = "back"}};
  const ctxb_graph_port outputs[] = {{.size = sizeof(ctxb_graph_port), .name = "result"}};
  const ctxb_graph_node nodes[] = {
      {.size = sizeof(ctxb_graph_node), .name = "blur", .instance = host->blur},
      {.size = sizeof(ctxb_graph_node), .name = "merge", .instance = host->merge}};
  const ctxb_graph_edge edges[] = {
      {.size = sizeof(ctxb_graph_edge), .from = "back", .to = "blur"},
      {.size = sizeof(ctxb_graph_edge), .from = "front", .to = "merge.a"},
      {.size = sizeof(ctxb_graph_edge), .from = "blur", .to = "merge.b"},
      {.size = sizeof(ctxb_graph_edge), .from = "merge", .to = "result"}};
  const ctxb_graph_description both = {.size = sizeof both,
                                       .input_count = 2,
                                       .output_count = 1,
                                       .node_count = 2,
                                       .edge_count = 4,
                                       .inputs = inputs,
                                       .outputs = outputs,
                                       .nodes = nodes,
                                       .edges = edges};
  const ctxb_graph_edge row[] = {{.size = sizeof(ctxb_graph_edge), .from = "back", .to = "blur"},
                                 {.size = sizeof(ctxb_graph_edge), .from = "blur", .to = "result"}};
  const ctxb_graph_description alone = {.size = sizeof alone,
                                        .input_count = 1,
                                        .output_count = 1,
                                        .node_count = 1,
                                        .edge_count = 2,
                                        .inputs = &inputs[1],
                                        .outputs = outputs,
                                        .nodes = nodes,
                                        .edges = row};
  const ctxb_activation_sizes sizes = {sizeof sizes, width, height, 0, 0};
  const ctxb_graph_options options = {.size = sizeof options, .jobs_in_flight = jobs};
  if (ctxb_graph_create(host->broker, &both, &sizes, &options, &host->merging) != CTXB_OK) {
    return failed("the graph of both");
  }
  if (ctxb_graph_create(host->broker, &alone, &sizes, NULL, &host->blurring) != CTXB_OK) {
    return failed("the graph of the blur");
  }
  return 0;
}

/* Returns the result of merge's operation "over" for one sample of straight alpha. */
static float over(const float* front, const float* back, int sample) {
  const float behind = back[3] * (1 - front[3]), alpha = front[3] + behind;
  if (sample == 3) return alpha;
  return alpha > 0 ? (front[sample] * front[3] + back[sample] * behind) / alpha : 0;
}

static int compare(const float* front, const float* blurred, const float* result) {
  for (int i = 0; i < samples; ++i) {
    const int pixel = i / 4 * 4;
    const float expected = over(front + pixel, blurred + pixel, i - pixel);
    if (fabsf(result[i] - expected) <= 1e-5f) continue;
    fprintf(stderr, "c_graph_host: sample %d is %g, and not %g\n", i, (double)result[i],
            (double)expected);
    return 1;
  }
  return 0;
}

static int run(Host* host) {
  static float front[samples], back[samples], blurred[samples], results[jobs][samples];
  for (int i = 0; i < samples; ++i) {
    front[i] = (float)(i * 7 % 101) / 100;
    back[i] = (float)(i * 13 % 97) / 96;
  }
  const void* const inputs[] = {front, back};
  ctxb_job_info info = {.size = sizeof info, .width = width, .height = height};
  uint64_t job = 0;
  for (int i = 0; i < jobs; ++i) {
    void* const outputs[] = {results[i]};
    const ctxb_job_buffers buffers = {.size = sizeof buffers,
                                      .input_count = 2,
                                      .output_count = 1,
                                      .inputs = inputs,
                                      .outputs = outputs};
    info.position = i;
    if (ctxb_graph_submit(host->merging, &buffers, &info, &job) != CTXB_OK) return failed("submit");
  }
  if (ctxb_graph_finish(host->merging, job, NULL) != CTXB_OK) return failed("finish");
  void* const outputs[] = {blurred};
  const ctxb_job_buffers buffers = {.size = sizeof buffers,
                                    .input_count = 1,
                                    .output_count = 1,
                                    .inputs = &inputs[1],
                                    .outputs = outputs};
  if (ctxb_graph_process(host->blurring, &buffers, &info, NULL) != CTXB_OK)
    return failed("process");
  if (fabsf(blurred[0] - back[0]) < 1e-3f) return failed("the picture was not blurred");
  for (int i = 0; i < jobs; ++i) {
    if (compare(front, blurred, results[i]) != 0) return 1;
  }
  return 0;
}

static int end(Host* host) {
  int wrong = 0;
  if (host->merging != NULL) wrong |= ctxb_graph_destroy(host->merging);
  if (host->blurring != NULL) wrong |= ctxb_graph_destroy(host->blurring);
  if (host->blur != NULL) wrong |= ctxb_instance_destroy(host->blur);
  if (host->merge != NULL) wrong |= ctxb_instance_destroy(host->merge);
  if (host->blur_library != NULL) wrong |= ctxb_plugin_library_close(host->blur_library);
  if (host->merge_library != NULL) wrong |= ctxb_plugin_library_close(host->merge_library);
  if (host->broker != NULL) wrong |= ctxb_broker_close(host->broker);
  return wrong == CTXB_OK ? 0 : failed("the end");
}

int c_graph_host(const char* plugin_folder) {
  Host host = {0};
  int status = 0;
  if (ctxb_broker_open(NULL, &host.broker) != CTXB_OK) status = failed("the broker");
  if (status == 0) status = load(&host, plugin_folder, "blur", &host.blur_library, &host.blur);
  if (status == 0) status = load(&host, plugin_folder, "merge", &host.merge_library, &host.merge);
  if (status == 0) status = connect(&host);
  if (status == 0) status = run(&host);
  return status | end(&host);
}
