// SPDX-License-Identifier: Apache-2.0
// Keeps what a library does to other processes away from the validator.
#pragma once

namespace ctxbroker::validate {

// The exit status of a child whose test has passed, but whose library has left processes behind.
constexpr int left_processes = 5;

// Goes on in a child of this process, with a session of its own. So a library can only harm this
// process when it ends or stops its parent, or all processes of its group. Meanwhile this process
// waits, ends what the library has left behind, and ends as the child did. Call it before there is
// another thread. Throws std::system_error.
void go_on_in_child();

}  // namespace ctxbroker::validate
