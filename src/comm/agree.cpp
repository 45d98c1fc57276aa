// SPDX-License-Identifier: MIT
#include "comm/agree.h"

#include <cstring>
#include <exception>

namespace vt {

namespace {

// Text travels as whole int64 words, which every group can carry.
std::vector<int64_t> pack(const std::string& text) {
    std::vector<int64_t> words(narrow<size_t>(div_up(narrow<int64_t>(text.size()), 8)));
    if (!text.empty()) std::memcpy(words.data(), text.data(), text.size());
    return words;
}
Tensor view(std::vector<int64_t>& words) {
    return {words.data(), {narrow<int64_t>(words.size())}, DType::kI64};
}
Tensor view(int64_t& word) {
    return {&word, {1}, DType::kI64};
}
std::string unpack(const std::vector<int64_t>& words, int64_t size) {
    std::string text(narrow<size_t>(size), '\0');
    if (!text.empty()) std::memcpy(text.data(), words.data(), text.size());
    return text;
}

}  // namespace

std::string broadcast_text(Group& group, const std::string& text, int root) {
    auto size = narrow<int64_t>(text.size());
    group.broadcast(view(size), root, nullptr).wait();
    std::vector<int64_t> words(narrow<size_t>(div_up(size, 8)));
    if (group.rank() == root) words = pack(text);
    if (!words.empty()) group.broadcast(view(words), root, nullptr).wait();
    return unpack(words, size);
}

std::vector<std::string> gather_texts(Group& group, const std::string& text) {
    std::vector<std::string> out;
    auto size = narrow<int64_t>(text.size());
    if (group.rank() != 0) {
        std::vector<int64_t> words = pack(text);
        group.send(view(size), 0, nullptr).wait();
        if (size > 0) group.send(view(words), 0, nullptr).wait();
        return out;
    }
    out.push_back(text);
    for (int r = 1; r < group.size(); ++r) {
        group.recv(view(size), r, nullptr).wait();
        std::vector<int64_t> words(narrow<size_t>(div_up(size, 8)));
        if (size > 0) group.recv(view(words), r, nullptr).wait();
        out.push_back(unpack(words, size));
    }
    return out;
}

void agree(Group& group, std::string_view doing, const std::function<void()>& work) {
    std::exception_ptr mine;
    std::string message;
    auto fault = Fault::kSystem;
    try {
        work();
    } catch (const Error& e) {
        mine = std::current_exception();
        message = e.message();
        fault = e.fault();
    } catch (const std::exception& e) {
        mine = std::current_exception();
        message = e.what();
    } catch (...) {
        mine = std::current_exception();
        message = "unknown exception";
    }
    // Lowest failing rank, or size() where all is well.
    int64_t culprit = mine ? group.rank() : group.size();
    group.all_reduce(view(culprit), ReduceOp::kMin, nullptr).wait();
    if (culprit == group.size()) return;
    auto code = static_cast<int64_t>(fault);
    group.broadcast(view(code), narrow<int>(culprit), nullptr).wait();
    message = broadcast_text(group, message, narrow<int>(culprit));
    if (mine) std::rethrow_exception(mine);
    raise(static_cast<Fault>(code),
          fmt::format("rank {} could not {}: {}", culprit, doing, message));
}

}  // namespace vt
