// The byte streams of the state extension. Short reads and writes are the host's right; here they
// are joined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ctxbroker/sdk/failure.hpp"

namespace ctxbroker::sdk {

class StateWriter {
 public:
  explicit StateWriter(const ctxb_output_stream& raw) noexcept : raw_(&raw) {}

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

  // The value's bytes as they are in memory. Choose types with a fixed size.
  template <class T>
  void write(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>, "write members one by one");
    write_bytes(&value, sizeof(T));
  }

 private:
  const ctxb_output_stream* raw_;
};

class StateReader {
 public:
  explicit StateReader(const ctxb_input_stream& raw) noexcept : raw_(&raw) {}

  // Exactly `bytes`; throws Failure when the stream ends before.
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

  template <class T>
  T read() {
    static_assert(std::is_trivially_copyable_v<T>, "read members one by one");
    T value{};
    read_bytes(&value, sizeof(T));
    return value;
  }

  // Throws Failure when there is more.
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
