// SPDX-License-Identifier: Apache-2.0
/// @file
/// The byte streams of a plug-in's state. A host may read and write in pieces; these classes put
/// the pieces together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ctxbroker/sdk/failure.hpp"

namespace ctxbroker::sdk {

/// Writes a plug-in's state. It is valid during the call of Stateful::save.
class StateWriter {
 public:
  /// Only the SDK constructs one.
  explicit StateWriter(const ctxb_output_stream& raw) noexcept : raw_(&raw) {}

  /// Writes bytes.
  ///
  /// @throws Failure  when the host does not take them.
  void write_bytes(const void* source, std::uint64_t bytes) {
    const auto* from = static_cast<const unsigned char*>(source);
    while (bytes > 0) {
      const std::int64_t done = raw_->write(raw_, from, bytes);
      if (done <= 0 || static_cast<std::uint64_t>(done) > bytes) {
        throw Failure(CTXB_ERROR, "the host could not take the plug-in's state");
      }
      from += done;
      bytes -= static_cast<std::uint64_t>(done);
    }
  }

  /// Writes a value's bytes as they are in memory. Choose types of a fixed size, because another
  /// build of the plug-in may read them.
  ///
  /// @throws Failure  as write_bytes.
  template <class T>
  void write(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>, "write members one by one");
    write_bytes(&value, sizeof(T));
  }

 private:
  const ctxb_output_stream* raw_;
};

/// Reads a plug-in's state. It is valid during the call of Stateful::load.
class StateReader {
 public:
  /// Only the SDK constructs one.
  explicit StateReader(const ctxb_input_stream& raw) noexcept : raw_(&raw) {}

  /// Reads exactly this many bytes.
  ///
  /// @throws Failure  when the state ends before, or cannot be read.
  void read_bytes(void* destination, std::uint64_t bytes) {
    auto* to = static_cast<unsigned char*>(destination);
    while (bytes > 0) {
      const std::int64_t done = raw_->read(raw_, to, bytes);
      if (done <= 0 || static_cast<std::uint64_t>(done) > bytes) {
        throw Failure(CTXB_ERROR, done == 0 ? "the saved state ends too early"
                                            : "the saved state cannot be read");
      }
      to += done;
      bytes -= static_cast<std::uint64_t>(done);
    }
  }

  /// Reads a value as StateWriter::write wrote it.
  ///
  /// @throws Failure  as read_bytes.
  template <class T>
  [[nodiscard]] T read() {
    static_assert(std::is_trivially_copyable_v<T>, "read members one by one");
    T value{};
    read_bytes(&value, sizeof(T));
    return value;
  }

  /// Checks that the state ends here.
  ///
  /// @throws Failure  when there is more.
  void expect_end() {
    unsigned char extra = 0;
    if (raw_->read(raw_, &extra, 1) != 0) {
      throw Failure(CTXB_ERROR, "the saved state is longer than expected");
    }
  }

 private:
  const ctxb_input_stream* raw_;
};

}  // namespace ctxbroker::sdk
