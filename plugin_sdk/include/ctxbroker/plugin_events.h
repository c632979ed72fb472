// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * What changes within a block of audio, and the transport. plugin.h, which says what holds for all
 * structs, includes this header.
 *
 * ctxb_job.parameters holds the values at the block's first frame. Events say what changes later in
 * the block. A plug-in that ignores them has each new value from the next block on.
 */
#ifndef CTXBROKER_PLUGIN_EVENTS_H
#define CTXBROKER_PLUGIN_EVENTS_H

#include <stdint.h>

/** The value moves in a straight line. Without this flag, it jumps. */
#define CTXB_EVENT_RAMP (1u << 0)

/** A change of one parameter, which has to be CTXB_PARAMETER_AUTOMATABLE. An event holds from its
 * offset on, until the parameter's next event or the block's end. Of two at one offset, the later
 * one in the list counts. The value at frame i is
 *     i < ramp_end ? from + (value - from) * ((double)(i - ramp_begin) / (double)(ramp_end -
 *                    ramp_begin))
 *                  : value
 * in double. A ramp that began in an earlier block, or goes on in the next one, has the same
 * numbers in each, counted from that block's first frame. So the values do not depend on where the
 * blocks end. The last value of a block is where the next block begins. */
typedef struct ctxb_parameter_event {
  uint32_t size;
  uint32_t flags;     /**< CTXB_EVENT_* */
  uint32_t parameter; /**< index in the descriptor's table */
  uint32_t offset;    /**< frame of the block, less than its width */
  double value;       /**< after the jump, or at the ramp's end; within the parameter's range */
  double from;        /**< where the ramp began; within the range. A jump has `value` here */
  int64_t ramp_begin; /**< frame at which the value is `from`, at most offset; may be negative. A
                         jump has its offset here */
  int64_t ramp_end;   /**< frame at which it reaches `value`, after offset; may lie after the block.
                         A jump has its offset here */
} ctxb_parameter_event;

#define CTXB_TRANSPORT_PLAYING (1u << 0)
#define CTXB_TRANSPORT_RECORDING (1u << 1)
#define CTXB_TRANSPORT_LOOPING (1u << 2)        /**< the loop is switched on */
#define CTXB_TRANSPORT_TEMPO (1u << 3)          /**< `tempo` and `tempo_step` are known */
#define CTXB_TRANSPORT_TIME_SIGNATURE (1u << 4) /**< likewise, and so on below */
#define CTXB_TRANSPORT_BEATS (1u << 5)
#define CTXB_TRANSPORT_SECONDS (1u << 6)

/** Where the host's song is at the block's first frame. A member that no flag announces is 0. While
 * the transport plays, the positions go on through the block at `tempo` and `tempo_step`. The host
 * begins a new block where they jump. */
typedef struct ctxb_transport {
  uint32_t size;
  uint32_t flags;                    /**< CTXB_TRANSPORT_* */
  double tempo;                      /**< quarter notes per minute, above 0 */
  double tempo_step;                 /**< added to the tempo after each frame */
  uint32_t beats_per_bar, beat_unit; /**< the time signature: 6, 8 */
  double song_beats;                 /**< quarter notes from the song's beginning */
  double bar_beats;                  /**< where the bar began */
  int64_t bar;                       /**< its number; the song's first bar is 0 */
  double loop_begin_beats, loop_end_beats;
  double song_seconds; /**< from the song's beginning */
  double loop_begin_seconds, loop_end_seconds;
} ctxb_transport;

#endif /* CTXBROKER_PLUGIN_EVENTS_H */
