// SPDX-License-Identifier: MIT
#include "data/h5_child.h"

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "core/check.h"
#include "data/child.h"

namespace vt {

namespace {

enum Kind : uint32_t { kHead = 0, kSample = 1, kRefusal = 2, kEnd = 3 };

struct Frame {
    uint32_t magic = kMagic, kind = kHead;
    uint64_t bytes = 0;
    static constexpr uint32_t kMagic = 0x44525456;  // "VTRD"
};
// In front of a sample's id, caption, latent and text.
struct SampleSizes {
    uint32_t id = 0, caption = 0, damaged = 0, pad = 0;
    uint64_t latent = 0, text = 0;  // floats
};
constexpr const char* kDamaged = "the file is damaged: copy or write it again";
constexpr uint64_t kMaxFrame = uint64_t{6} << 30;

void put(std::string& to, const void* from, size_t bytes) {
    to.append(static_cast<const char*>(from), bytes);
}

void send(const Fd& fd, Kind kind, const std::string& body) {
    const Frame frame{.kind = kind, .bytes = body.size()};
    write_all(fd, &frame, sizeof frame, "the parent's pipe");
    write_all(fd, body.data(), narrow<int64_t>(body.size()), "the parent's pipe");
}

std::string head_json(const H5Head& h) {
    return nlohmann::json{{"facts", facts_given_json(h.facts)},
                          {"shape", h.shape},
                          {"count", h.count},
                          {"text_dim", h.text_dim},
                          {"stored", name_of(h.stored)},
                          {"checksums", h.has_checksums},
                          {"empty", h.has_empty},
                          {"empty_text", h.empty_text}}
        .dump();
}

H5Head head_from(const std::string& text) {
    H5Head h;
    const nlohmann::json j = nlohmann::json::parse(text);
    h.facts = facts_given_from_json(j.at("facts").get<std::string>(), "the file");
    j.at("shape").get_to(h.shape);
    j.at("count").get_to(h.count);
    j.at("text_dim").get_to(h.text_dim);
    for (const Stored s : {Stored::kF32, Stored::kBF16, Stored::kF16, Stored::kF64}) {
        if (j.at("stored") == name_of(s)) h.stored = s;
    }
    j.at("checksums").get_to(h.has_checksums);
    j.at("empty").get_to(h.has_empty);
    j.at("empty_text").get_to(h.empty_text);
    return h;
}

}  // namespace

int h5_child_main(const std::string& foreign_text, const std::string& file) {
    try {
        const Foreign foreign = foreign_text.empty() ? Foreign{} : foreign_from_json(foreign_text);
        const Fd out = take_child_stdout();
        if (!out.open()) return 4;
        limit_child();
        limit_child_cpu();
        try {
            h5_read_all(
                file, foreign,
                [&](const H5Head& h) {
                    for (const float v : h.empty_text) {
                        if (!std::isfinite(v)) raise(Fault::kData, "empty_text is not finite");
                    }
                    send(out, kHead, head_json(h));
                },
                [&](const H5Sample& s) {
                    const SampleSizes sizes{.id = static_cast<uint32_t>(s.id.size()),
                                            .caption = static_cast<uint32_t>(s.caption.size()),
                                            .damaged = s.damaged ? 1U : 0U,
                                            .latent = s.latent.size(),
                                            .text = s.text.size()};
                    std::string body;
                    put(body, &sizes, sizeof sizes);
                    body += s.id + s.caption;
                    put(body, s.latent.data(), s.latent.size() * 4);
                    put(body, s.text.data(), s.text.size() * 4);
                    send(out, kSample, body);
                    limit_child_cpu();
                });
            send(out, kEnd, {});
        } catch (const Error& e) {
            send(out, kRefusal, Refusal{e.message(), e.hint()}.encode());
        } catch (const std::bad_alloc&) {
            send(out, kRefusal,
                 Refusal{"reading it asks for more memory than it may have",
                         "the file is damaged, or its chunks are too large"}
                     .encode());
        }
        return 0;
    } catch (const std::exception&) {
        return 4;
    }
}

// --- the parent ---------------------------------------------------------------------------------

namespace {

constexpr const char* kWhat = "the reading child";

class Reader {
  public:
    Reader(const fs::path& file, const IndexOptions& options) : file_(file), options_(options) {
        spawn_child(child_, kWhat, options.program,
                    {"vtrain", "data", "h5-child", "--foreign", foreign_json(options.foreign), "--",
                     file.string()});
    }

    // The next frame's body; its kind in *kind. Nothing at the end of the stream.
    std::string next(Kind* kind) {
        Frame f;
        take(&f, sizeof f);
        if (f.magic != Frame::kMagic || f.kind > kEnd || f.bytes > kMaxFrame) garbage();
        *kind = static_cast<Kind>(f.kind);
        std::string body;
        // grows as bytes come, so that a lie about the size costs nothing
        while (body.size() < f.bytes) {
            const size_t at = body.size(), n = std::min<size_t>(f.bytes - at, size_t{1} << 22);
            body.resize(at + n);
            take(body.data() + at, n);
        }
        return body;
    }
    [[noreturn]] void garbage() const { bad("the reading child sent garbage"); }
    [[noreturn]] void bad(const std::string& why, const std::string& hint = kDamaged) const {
        raise(Fault::kData, fmt::format("{}: {}", file_.string(), why), hint);
    }

  private:
    void take(void* to, size_t bytes) {
        const auto deadline =
            ChildClock::now() +
            std::chrono::milliseconds(static_cast<int64_t>(options_.timeout_s * 1000));
        char* p = static_cast<char*>(to);
        while (bytes > 0) {
            const int64_t n = read_child(child_, p, bytes, deadline);
            if (n < 0) {
                bad(fmt::format("reading one sample took longer than {} s", options_.timeout_s));
            }
            if (n == 0) {
                const int status = child_.wait();
                // a child that ends by itself says something first, whatever the file
                if (!heard_ && WIFEXITED(status)) refuse_child(kWhat, options_.program, status);
                bad(fmt::format("the HDF5 library {} while reading it",
                                describe_wait_status(status)));
            }
            heard_ = true;
            p += n;
            bytes -= static_cast<size_t>(n);
        }
    }

    const fs::path& file_;
    const IndexOptions& options_;
    Child child_;
    bool heard_ = false;
};

H5Sample sample_from(const std::string& body, const H5Head& head, const Reader& reader) {
    SampleSizes sizes;
    if (body.size() < sizeof sizes) reader.garbage();
    std::memcpy(&sizes, body.data(), sizeof sizes);
    const auto elements =
        static_cast<uint64_t>(head.shape[0] * head.shape[1] * head.shape[2] * head.shape[3]);
    if (sizes.latent != elements || sizes.text > kMaxFrame / 4 ||
        body.size() !=
            sizeof sizes + uint64_t{sizes.id} + sizes.caption + 4 * sizes.latent + 4 * sizes.text) {
        reader.garbage();
    }
    H5Sample s;
    const char* p = body.data() + sizeof sizes;
    s.id.assign(p, sizes.id);
    p += sizes.id;
    s.caption.assign(p, sizes.caption);
    p += sizes.caption;
    s.damaged = sizes.damaged != 0;
    s.latent.resize(sizes.latent);
    s.text.resize(sizes.text);
    if (sizes.latent > 0) std::memcpy(s.latent.data(), p, 4 * sizes.latent);
    if (sizes.text > 0) std::memcpy(s.text.data(), p + 4 * sizes.latent, 4 * sizes.text);
    return s;
}

}  // namespace

void read_h5(const fs::path& file, const IndexOptions& options,
             const std::function<void(const H5Head&)>& on_head,
             const std::function<void(const H5Sample&)>& on_sample) {
    (void)stamp_of(file);  // missing: kUser
    Reader reader(file, options);
    H5Head head;
    bool begun = false;
    for (int64_t samples = 0;;) {
        Kind kind = kEnd;
        const std::string body = reader.next(&kind);
        if (kind == kRefusal) {
            const Refusal r = Refusal::decode(body);
            reader.bad(r.reason, r.hint);
        }
        if ((kind == kHead) == begun) reader.garbage();
        if (kind == kHead) {
            try {
                head = head_from(body);
            } catch (const nlohmann::json::exception&) {
                reader.garbage();
            }
            int64_t elements = 1;
            for (const int64_t d : head.shape) {
                if (d < 1 || __builtin_mul_overflow(elements, d, &elements) ||
                    elements > static_cast<int64_t>(kMaxFrame / 4)) {
                    reader.bad(fmt::format("latents of {} x {} x {} x {}", head.shape[0],
                                           head.shape[1], head.shape[2], head.shape[3]));
                }
            }
            if (head.count < 0 || head.text_dim < 1) reader.bad("it has no text of a width");
            begun = true;
            on_head(head);
        } else if (kind == kEnd) {
            if (samples != head.count) reader.garbage();
            return;
        } else {
            if (samples++ == head.count) reader.garbage();
            on_sample(sample_from(body, head, reader));
        }
    }
}

}  // namespace vt
