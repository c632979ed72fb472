// SPDX-License-Identifier: Apache-2.0
// What the test's worker module does when it gets a message of this type.
#pragma once

#include <cstdint>

namespace ctxbroker::test {

enum Act : std::uint32_t {
  echo,               // answers with the message
  scale,              // {handle, factor}: multiplies the floats in a lent block; answers how many
  lent_blocks,        // how many blocks it was told of, minus those taken back
  fails,              // an error with a text
  throws,             // a C++ exception
  notifies,           // sends the message as a notification of type 7
  passes_back,        // {number}: takes a descriptor and passes it back under number + 1
  gives,              // passes a descriptor of its own under the number 5
  environment,        // {name}: the variable's value
  descriptors,        // the open descriptors, as one 64-bit mask
  group,              // its process id and its group
  prints,             // 3 MB of lines
  sleeps,             // {milliseconds}; notifies before
  reaches,            // an Attempt; answers with 0, or the errno that stopped it
  sends,              // {number}: takes a descriptor and writes "hello" into it
  forks_and_returns,  // in both processes; the child notifies before. Answers with the child's id
  scale_frame,        // {number, bytes, factor}: as scale, in device memory behind a descriptor

  first_deadly = 100,
  segfault = first_deadly,
  aborts,
  exit_0,
  exit_3,
  overflow,  // of the stack
  kills_itself,
  stops_itself,
  endless,
  deadlock,
  holds_others,  // all threads but its own wait in a signal handler, and it sleeps
  allocates,     // by operator new, until there is no more
  mallocs,       // by malloc, with a write through null at the end
  reserves,      // by malloc, without a write, and aborts at the end
  forks_and_ends,
  ends_alone,    // its thread, and no other one
  ends_alone_7,  // likewise, with this exit status
  closes_all,    // descriptors
  device_trap,
  device_fault,

  first_lie = 200,
  bad_state = first_lie,  // each in the cell of its own call
  bad_sequence,
  bad_length,
  long_error,
  answers_nobody,  // in a cell that is not in use
  answers_twice,
  all_ones,      // over the whole channel
  random_bytes,  // over the whole channel, again and again, for a second
  shuts_socket,
  bad_packet,
  unknown_packet,
  long_notification,
  packet_without_descriptor,
  two_descriptors,  // in one packet
  floods,           // notifications for a second
  passes_sockets,   // {port, packets, in each}: connected ones whose close lingers; then it waits
  passes_pipe,      // under the number 5, as the next ones
  passes_file,      // its own program
  passes_folder,
  passes_many,  // pieces of memory, for a second

  first_relative = 300,
  makes_siblings = first_relative,  // children of its parent: one ends at once, one stays
  is_traced,                        // {milliseconds}: by a process that stays, and crashes
};

// The ways in which a plug-in may try to reach outside its process. See reach.cpp.
enum class Way : std::uint64_t {
  tcp_connection,        // to 127.0.0.1
  tcp_connection_child,  // the same by a program that it starts
  ipv6_socket,
  netlink_socket,
  packet_socket,
  vsock_socket,
  ipv4_pair,
  socket_32_bit,  // the same system call in the way of 32-bit programs
  io_uring,
  unix_socket,

  memory_write,
  memory_read,
  memory_file,      // writes into /proc/PID/mem
  descriptor_link,  // reads /proc/PID/fd/2
  trace,
  descriptor,
  limit,
  signal,
  signal_child,  // by a child
  own_child,     // signals a child of its own
};

struct Attempt {
  Way way;
  std::uint64_t port;     // of 127.0.0.1
  std::uint64_t process;  // the victim
  std::uint64_t address;  // of 64 bits in it
};

int reach(const Attempt& attempt);

// The acts that end a process by themselves, anywhere. Returns for all others.
void perform(Act act);

}  // namespace ctxbroker::test
