// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Parameters and presets of plug-ins for hosts in C. host_plugins.h, which says what holds for all
 * functions about instances, includes this header. ctxb_plugin_library_parameter describes the
 * parameters.
 *
 *     const double warm[4] = {1, 0.9, 0.8, 1};
 *     ctxb_instance_set_parameter(grade, "radius", 8);
 *     ctxb_instance_set_numbers(grade, 3, warm, 4);
 *     ctxb_instance_save_preset(grade, write_to_file, file);
 */
#ifndef CTXBROKER_HOST_PARAMETERS_H
#define CTXBROKER_HOST_PARAMETERS_H

#include "ctxbroker/host_plugins.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Numbers --------------------------------------------------------------------------------*/

/** Sets a parameter of one number. The next job or activation gets it. [any] for automatable
 * parameters.
 *
 * @param id     the parameter's id.
 * @param value  within the parameter's range.
 * @return CTXB_ERROR_INVALID_ARGUMENT for an unknown id, and for a value that is not allowed;
 *         CTXB_ERROR_WRONG_STATE for a parameter that is not automatable while the instance is
 *         active. */
CTXB_EXPORT ctxb_status ctxb_instance_set_parameter(ctxb_instance* instance, const char* id,
                                                    double value);
/** Gets a parameter's number, or the first one of several. [any]
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT for an unknown id, and for a string or a file. */
CTXB_EXPORT ctxb_status ctxb_instance_parameter(const ctxb_instance* instance, const char* id,
                                                double* value);

/** Sets all numbers of a parameter as a whole: no job gets some of them. It takes no lock and
 * allocates nothing, so a real-time thread may call it. It does not change ctxb_last_error. [any]
 * for automatable parameters.
 *
 * @param parameter  the parameter's number, from 0.
 * @param numbers    one, x and y of a point, or red, green, blue and alpha of a colour.
 * @param count      how many.
 * @return as ctxb_instance_set_parameter. */
CTXB_EXPORT ctxb_status ctxb_instance_set_numbers(ctxb_instance* instance, uint32_t parameter,
                                                  const double* numbers, uint32_t count);
/** Gets all numbers of a parameter as a whole. It takes no lock and allocates nothing. It does not
 * change ctxb_last_error. [any]
 *
 * @param numbers  gets four numbers; those that the parameter does not have are 0.
 * @return CTXB_ERROR_INVALID_ARGUMENT when there is no such parameter, and for a string or a file.
 */
CTXB_EXPORT ctxb_status ctxb_instance_numbers(const ctxb_instance* instance, uint32_t parameter,
                                              double* numbers);

/** Prints a value for people as the plug-in does it: "0.7 EV". You may call it while a graph runs a
 * job of the instance.
 *
 * @param id       the parameter's id.
 * @param numbers  the value, which need not be the present one.
 * @param count    how many numbers there are.
 * @param write    takes the text.
 * @param data     passed to write.
 * @return CTXB_ERROR_INVALID_ARGUMENT for an unknown id, a value that is not allowed, and a string
 *         or a file; CTXB_ERROR when the plug-in refuses. */
CTXB_EXPORT ctxb_status ctxb_instance_print(const ctxb_instance* instance, const char* id,
                                            const double* numbers, uint32_t count,
                                            ctxb_text_function write, void* data);
/** Reads a value from what a person wrote. It sets nothing. You may call it while a graph runs a
 * job of the instance.
 *
 * @param numbers  gets four numbers; those that the parameter does not have are 0.
 * @return CTXB_ERROR_INVALID_ARGUMENT for an unknown id, for text that is no value of the
 * parameter, and for a string or a file. */
CTXB_EXPORT ctxb_status ctxb_instance_read(const ctxb_instance* instance, const char* id,
                                           const char* text, double* numbers);

/* ---- Text -----------------------------------------------------------------------------------*/

/** Sets a string or a file. The next activation gets it. The path of a file is made absolute, as
 * seen from the process's working folder.
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT for an unknown id, for text that is not allowed, and for a
 *         parameter of numbers; CTXB_ERROR_WRONG_STATE while the instance is active. */
CTXB_EXPORT ctxb_status ctxb_instance_set_text(ctxb_instance* instance, const char* id,
                                               const char* text);
/** Writes the text of a string or a file, in one piece.
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT for an unknown id, and for a parameter of numbers. */
CTXB_EXPORT ctxb_status ctxb_instance_text(const ctxb_instance* instance, const char* id,
                                           ctxb_text_function write, void* data);

/* ---- Presets --------------------------------------------------------------------------------*/

/** Writes all parameters and the plug-in's state as one JSON object (ctxbroker.preset/1), in one
 * piece.
 *
 * @return CTXB_ERROR_WRONG_STATE while the instance is active and has a state; CTXB_ERROR when the
 *         plug-in refuses. */
CTXB_EXPORT ctxb_status ctxb_instance_save_preset(const ctxb_instance* instance,
                                                  ctxb_text_function write, void* data);
/** Sets all parameters and the state from what ctxb_instance_save_preset wrote, perhaps for another
 * version of the plug-in. After an error, nothing has changed. An active instance accepts only what
 * changes automatable parameters alone.
 *
 * @param json    the preset, ending with 0.
 * @param remark  takes one sentence for each thing that is not as the preset says: a parameter that
 *                is missing or unknown, a value that is not allowed any more, another version. What
 *                it returns has no effect. It may be null.
 * @param data    passed to remark.
 * @return CTXB_ERROR_INVALID_ARGUMENT for text that is no whole preset, and for one of another
 *         plug-in; CTXB_ERROR_WRONG_STATE when the instance has to be deactivated first; CTXB_ERROR
 *         when the plug-in refuses its state. */
CTXB_EXPORT ctxb_status ctxb_instance_load_preset(ctxb_instance* instance, const char* json,
                                                  ctxb_text_function remark, void* data);

#ifdef __cplusplus
}
#endif
#endif /* CTXBROKER_HOST_PARAMETERS_H */
