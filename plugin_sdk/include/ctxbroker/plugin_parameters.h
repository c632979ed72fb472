// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Parameters in the ctxbroker plug-in ABI. plugin.h includes this header, and says what holds for
 * all structs.
 *
 * The plug-in describes its parameters as static data. The host owns their values, and hands the
 * plug-in a snapshot of them with every activation and every job. A parameter's index is its
 * position in the descriptor's table. Its id never changes. */
#ifndef CTXBROKER_PLUGIN_PARAMETERS_H
#define CTXBROKER_PLUGIN_PARAMETERS_H

#include <stdint.h>

/** What kind of value a parameter has. */
#define CTXB_PARAMETER_FLOAT 0
#define CTXB_PARAMETER_INTEGER 1
#define CTXB_PARAMETER_BOOLEAN 2 /**< 0 or 1 */
#define CTXB_PARAMETER_CHOICE 3  /**< an index into `choices`; minimum is 0 */
#define CTXB_PARAMETER_COLOUR 4  /**< four numbers: red, green, blue (linear light) and alpha */
#define CTXB_PARAMETER_POINT 5   /**< two numbers: x and y */
#define CTXB_PARAMETER_STRING 6  /**< text */
#define CTXB_PARAMETER_FILE 7    /**< the path of a file; "": none */

/** The value may change between two jobs of one activation. Without this flag, the host changes the
 * value only between deactivate and activate. STRING and FILE never have the flag. */
#define CTXB_PARAMETER_AUTOMATABLE (1u << 0)
/** Hosts do not show the parameter to people. Its value is saved as any other. */
#define CTXB_PARAMETER_HIDDEN (1u << 1)
/** Hosts may show the parameter only to people who ask for more. */
#define CTXB_PARAMETER_ADVANCED (1u << 2)

/** The most bytes of a STRING or a FILE, without the 0 at the end. */
#define CTXB_PARAMETER_TEXT_MAX 4096u

/** One parameter of a plug-in: static data, as the descriptor. */
typedef struct ctxb_parameter {
  uint32_t size;
  uint32_t type;              /**< CTXB_PARAMETER_FLOAT ... */
  const char* id;             /**< [a-z0-9_]+, unique in the plug-in, never changes its meaning */
  const char* name;           /**< for people */
  const char* unit;           /**< "EV", "px", "Hz", "dB", "ms", "%"; "" for a plain number */
  const char* description;    /**< one sentence */
  double minimum, maximum;    /**< of each number, inclusive; their difference is finite; 0 for
                                 STRING and FILE */
  double default_numbers[4];  /**< as many as the type has, each within minimum and maximum; the
                                 others are 0 */
  const char* const* choices; /**< CHOICE only: names, ending with null; else null */
  uint32_t flags;             /**< CTXB_PARAMETER_* */
  /** How a slider moves through the range of a FLOAT or an INTEGER: value = minimum + (maximum -
   * minimum) * pow(position, skew), with a position from 0 to 1. With 3, most of the slider is for
   * the small values, as is usual for Hz. 1 and 0: evenly. */
  double skew;
  const char* group; /**< for people: parameters of one group belong together; "" for none. null is
                        "" */
  const char* default_text;   /**< STRING and FILE only; null is "" */
  const char* const* endings; /**< FILE only: what the file's name may end with (".wav", ".flac"),
                                 ending with null. Upper and lower case are equal. null: anything */
} ctxb_parameter;

/** The value of one parameter. */
typedef struct ctxb_value {
  uint32_t size;
  uint32_t type;     /**< the parameter's */
  double numbers[4]; /**< as many as the type has; the others are 0 */
  const char* text;  /**< STRING and FILE; else "". At most CTXB_PARAMETER_TEXT_MAX bytes */
} ctxb_value;

#endif /* CTXBROKER_PLUGIN_PARAMETERS_H */
