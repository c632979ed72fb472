// SPDX-License-Identifier: Apache-2.0
#include "image/linked.hpp"

#include "image/bytes.hpp"

namespace ctxbroker::image {

namespace {

void append(std::vector<std::byte>& to, const void* from, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(from);
  to.insert(to.end(), bytes, bytes + size);
}

void append_number(std::vector<std::byte>& to, std::uint64_t number) {
  append(to, &number, sizeof number);
}

// A size and that many bytes, from the beginning of `rest`, which moves on behind them.
std::string take_text(Bytes& rest) {
  std::uint64_t size = 0;
  if (rest.size() >= sizeof size) size = read<std::uint64_t>(rest, 0);
  if (rest.size() < sizeof size || size > rest.size() - sizeof size) {
    fail(Reason::invalid, "the linked image is truncated or corrupt: an input lies beyond its end");
  }
  std::string text(reinterpret_cast<const char*>(rest.data()) + sizeof size, size);
  rest = rest.subspan(sizeof size + size);
  return text;
}

}  // namespace

std::vector<std::byte> write_linked(const std::vector<LinkedInput>& inputs) {
  std::uint64_t size = linked_header_bytes;
  for (const LinkedInput& input : inputs) size += 16 + input.name.size() + input.ptx.size();
  std::vector<std::byte> image;
  image.reserve(size);
  append(image, linked_magic.data(), linked_magic.size());
  append_number(image, size);
  append_number(image, inputs.size());
  for (const LinkedInput& input : inputs) {
    for (const std::string* text : {&input.name, &input.ptx}) {
      append_number(image, text->size());
      append(image, text->data(), text->size());
    }
  }
  return image;
}

std::uint64_t linked_size(Bytes header) {
  const auto size = read<std::uint64_t>(header, linked_magic.size());
  if (size < linked_header_bytes || size > limits::image_bytes.most) {
    fail(Reason::invalid, "the linked image is corrupt: it says that it has " +
                              std::to_string(size) + " bytes; the limit image_bytes is " +
                              std::to_string(limits::image_bytes.most));
  }
  return size;
}

std::vector<LinkedInput> read_linked(Bytes image) {
  if (image.size() < linked_header_bytes || linked_size(image) > image.size()) {
    fail(Reason::invalid, "the linked image is truncated");
  }
  Bytes rest = image.first(linked_size(image)).subspan(linked_header_bytes);
  std::vector<LinkedInput> inputs;
  auto left = read<std::uint64_t>(image, 16);
  if (left > limits::image_parts.most) {
    fail(Reason::invalid, "the linked image has " + limits::beyond(limits::image_parts));
  }
  for (; left > 0; --left) {
    std::string name = take_text(rest);
    inputs.push_back({std::move(name), take_text(rest)});
  }
  return inputs;
}

}  // namespace ctxbroker::image
