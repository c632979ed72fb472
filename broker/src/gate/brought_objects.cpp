// SPDX-License-Identifier: Apache-2.0
#include "gate/brought_objects.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "gate/common_libraries.hpp"

namespace ctxbroker::detail {

std::vector<const LoadedObject*> brought(const std::vector<LoadedObject>& present,
                                         const LoadedObject& opened,
                                         const std::function<bool(const LoadedObject&)>& fits) {
  std::vector<const LoadedObject*> all{&opened};
  const auto is_of_these = [&](const LoadedObject& one) {
    return std::find(all.begin(), all.end(), &one) != all.end();
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const LoadedObject& one : present) {
      const bool is_one = &one > &opened && !is_starter(one) && fits(one);
      if (is_one && needs(*all[i], one) && !is_of_these(one)) all.push_back(&one);
    }
  }
  const auto is_needed_by_others = [&](const LoadedObject* one) {
    return one != &opened &&
           std::any_of(present.begin(), present.end(), [&](const LoadedObject& user) {
             return needs(user, *one) && !is_of_these(user);
           });
  };
  for (std::size_t before = 0; before != all.size();) {
    before = all.size();
    std::vector<const LoadedObject*> left;
    std::copy_if(all.begin(), all.end(), std::back_inserter(left),
                 [&](const LoadedObject* one) { return !is_needed_by_others(one); });
    all = std::move(left);
  }
  return all;
}

}  // namespace ctxbroker::detail
