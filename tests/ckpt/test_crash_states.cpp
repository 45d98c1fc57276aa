// SPDX-License-Identifier: MIT
// Every state a power failure may leave of a recorded save. What was written and not synced may be
// there, be missing or be torn, in any combination; directory entries too. Whatever is left, the
// loader must find exactly the old or exactly the new checkpoint, and the new one once "committed"
// was said. The model is that of Pillai et al. 2014 ("All file systems are not created equal"), at
// its weakest: a sync of a file persists its bytes and not its name.
#include <cstdlib>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "ckpt/run_dir.h"
#include "ckpt/save.h"
#include "core/hash.h"
#include "tests/ckpt/fault_shim.h"
#include "tests/ckpt/states.h"
#include "tests/paths.h"

using namespace vt;
using test::Armed;
using test::Call;
using test::Mischief;
using test::State;

namespace {

struct Node {
    bool folder = false;
    std::string bytes;
    std::map<std::string, int> entries;  // name -> node
};
using Disk = std::map<int, Node>;  // node 0: the run's folder

struct Op {
    enum class Kind { kLink, kUnlink, kRename, kExchange, kWrite, kSize, kSync, kSaid };
    Kind kind = Kind::kSaid;
    int where = 0;  // the folder, or the file
    std::string name{}, to{};
    int node = -1, other = -1;
    int64_t offset = 0;
    std::string bytes{};
};

// Turns recorded calls into operations on nodes, by carrying them out.
class Recording {
  public:
    explicit Recording(const fs::path& run) : run_(run) { before_ = now_ = read(run, 0); }

    void add(const Call& c) {
        if (c.path == "stdout") {
            if (c.data.find("committed step") != std::string::npos) push({.kind = Op::Kind::kSaid});
            return;
        }
        if (c.path.rfind(run_.string(), 0) != 0) return;
        const fs::path path = c.path;
        const int parent = find(path.parent_path());
        const std::string name = path.filename();
        if (c.what == "mkdir" || (c.what == "open" && c.creates && find(path) < 0)) {
            const int node = next_++;
            now_[node].folder = c.what == "mkdir";
            created_[node] = now_[node];
            push({.kind = Op::Kind::kLink, .where = parent, .name = name, .node = node});
        } else if (c.what == "write") {
            push({.kind = Op::Kind::kWrite,
                  .where = find(path),
                  .offset = c.offset,
                  .bytes = c.data});
        } else if (c.what == "reserve") {
            push({.kind = Op::Kind::kSize, .where = find(path), .offset = c.offset});
        } else if (c.what == "fsync") {
            push({.kind = Op::Kind::kSync, .where = find(path)});
        } else if (c.what == "rename" || c.what == "exchange") {
            const std::string to = fs::path(c.to).filename();
            push({.kind = c.what == "rename" ? Op::Kind::kRename : Op::Kind::kExchange,
                  .where = parent,
                  .name = name,
                  .to = to,
                  .node = find(path),
                  .other = find(c.to)});
        } else if (c.what == "unlink") {
            push({.kind = Op::Kind::kUnlink, .where = parent, .name = name, .node = find(path)});
        }
    }

    [[nodiscard]] const std::vector<Op>& ops() const { return ops_; }
    void forget(size_t i) { ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(i)); }
    [[nodiscard]] const Disk& before() const { return before_; }
    [[nodiscard]] const std::map<int, Node>& created() const { return created_; }

    static void apply(Disk& disk, const Op& op, const std::string& bytes) {
        auto& names = disk[op.where].entries;
        switch (op.kind) {
            case Op::Kind::kLink:
                names[op.name] = op.node;
                break;
            case Op::Kind::kUnlink:
                if (const auto at = names.find(op.name); at != names.end() && at->second == op.node)
                    names.erase(at);
                break;
            case Op::Kind::kRename:
                if (const auto at = names.find(op.name); at != names.end() && at->second == op.node)
                    names.erase(at);
                names[op.to] = op.node;
                break;
            case Op::Kind::kExchange:
                names[op.name] = op.other;
                names[op.to] = op.node;
                break;
            case Op::Kind::kWrite: {
                std::string& file = disk[op.where].bytes;
                const auto at = static_cast<size_t>(op.offset);
                if (file.size() < at + bytes.size()) file.resize(at + bytes.size());
                file.replace(at, bytes.size(), bytes);
                break;
            }
            case Op::Kind::kSize:
                if (std::string& file = disk[op.where].bytes;
                    file.size() < static_cast<size_t>(op.offset))
                    file.resize(static_cast<size_t>(op.offset));
                break;
            case Op::Kind::kSync:
            case Op::Kind::kSaid:
                break;
        }
    }

  private:
    void push(Op op) {
        REQUIRE(op.where >= 0);
        apply(now_, op, op.bytes);
        ops_.push_back(std::move(op));
    }
    Disk read(const fs::path& dir, int node) {
        Disk disk;
        disk[node].folder = true;
        for (const auto& e : fs::directory_iterator(dir)) {
            const int child = next_++;
            disk[node].entries[e.path().filename()] = child;
            if (e.is_directory()) {
                disk.merge(read(e.path(), child));
            } else {
                disk[child].bytes = read_file(e.path());
            }
        }
        return disk;
    }
    int find(const fs::path& path) {
        int node = 0;
        const fs::path below = path.lexically_relative(run_);
        if (below == ".") return 0;
        for (const fs::path& part : below) {
            const auto at = now_[node].entries.find(part.string());
            if (at == now_[node].entries.end()) return -1;
            node = at->second;
        }
        return node;
    }

    fs::path run_;
    Disk before_, now_;
    std::map<int, Node> created_;
    std::vector<Op> ops_;
    int next_ = 1;
};

// Does a sync in (i, end) persist op i?
bool forced(const std::vector<Op>& ops, size_t i, size_t end) {
    for (size_t j = i + 1; j < end; ++j) {
        if (ops[j].kind == Op::Kind::kSync && ops[j].where == ops[i].where) return true;
    }
    return false;
}

// A write of which some sectors arrived; the others hold zeros, or what lay there before.
std::string torn(const std::string& bytes, uint64_t draw) {
    constexpr size_t kSector = 64;
    std::string out = bytes;
    for (size_t at = 0; at < out.size(); at += kSector) {
        const auto b = philox::block(77, Purpose::kTest, draw, at)[0];
        if (b % 2 == 0) continue;
        for (size_t i = at; i < std::min(at + kSector, out.size()); ++i) {
            out[i] = b % 4 == 1 ? '\0' : static_cast<char>(0xa5);
        }
    }
    if (philox::block(78, Purpose::kTest, draw, 0)[0] % 4 == 0) {  // and not to its end
        out.resize(philox::block(78, Purpose::kTest, draw, 1)[0] % (out.size() + 1));
    }
    return out;
}

// The disk after a crash before op `end`; `draw` says what became of what was not synced.
Disk crashed(const Recording& r, size_t end, uint64_t draw) {
    Disk disk = r.before();
    for (const auto& [node, empty] : r.created()) disk[node] = empty;
    std::vector<size_t> loose;
    for (size_t i = 0; i < end; ++i) {
        const Op::Kind k = r.ops()[i].kind;
        if (k != Op::Kind::kSync && k != Op::Kind::kSaid && !forced(r.ops(), i, end)) {
            loose.push_back(i);
        }
    }
    const auto pick = philox::block(79, Purpose::kTest, draw, 0);
    const size_t one = loose.empty() ? 0 : loose[pick[1] % loose.size()];
    size_t next = 0;
    for (size_t i = 0; i < end; ++i) {
        const Op& op = r.ops()[i];
        std::string bytes = op.bytes;
        if (next < loose.size() && loose[next] == i) {
            ++next;
            const auto b = philox::block(80, Purpose::kTest, draw, i);
            bool kept = true;
            switch (pick[0] % 8) {
                case 0:
                    kept = false;
                    break;
                case 1:
                    break;
                case 2:
                    kept = i != one;
                    break;
                case 3:
                    kept = i == one;
                    break;
                default:
                    kept = b[0] % 2 == 0;
                    if (b[1] % 3 == 0) bytes = torn(bytes, draw * 1000 + i);
            }
            if (!kept) continue;
        }
        Recording::apply(disk, op, bytes);
    }
    return disk;
}

void write_tree(const Disk& disk, int node, const fs::path& dir, std::string* text) {
    if (text == nullptr) fs::create_directories(dir);
    for (const auto& [name, child] : disk.at(node).entries) {
        const Node& n = disk.at(child);
        if (text != nullptr) *text += fmt::format("{}/{} {} ", dir.string(), name, n.bytes.size());
        if (n.folder) {
            write_tree(disk, child, dir / name, text);
        } else if (text != nullptr) {
            *text += n.bytes;
        } else {
            const Fd fd = create_write(dir / name);
            write_all(fd, n.bytes.data(), std::ssize(n.bytes), dir / name);
        }
    }
}

struct Scene {
    const char* name;
    int64_t old_step, new_step;
    bool can_exchange;
};
const Scene kScenes[] = {{"one after another, then pruning", 10, 20, true},
                         {"over one of the same step", 20, 20, true},
                         {"over an older one, without an exchange", 10, 20, false}};

Recording record(const fs::path& dir, const Scene& scene) {
    fs::remove_all(dir);
    const auto saved = [&](int64_t step, uint64_t seed) {
        CheckpointInfo info;
        info.step = step;
        info.run_id = "run-a";
        State s(seed);
        save(dir, info, s.whole(), *self_group());
    };
    {
        const Armed quiet(Mischief::kNone, -1);
        saved(4, 4);
        saved(scene.old_step, 5);
    }
    Recording r(dir);
    std::vector<Call> calls;
    {
        const Armed armed(Mischief::kNone, -1, 0, scene.can_exchange);
        saved(scene.new_step, 6);
        std::set<int64_t> verified = {scene.old_step, scene.new_step};
        (void)prune(dir, {.keep_last = 2}, "run-a", verified, scene.new_step);
        calls = Armed::calls();
    }
    for (const Call& c : calls) r.add(c);
    return r;
}

// Seed of what the loader finds in such a disk: 4 5 6, 0 for anything else.
uint64_t found_in(const Disk& disk, const fs::path& dir) {
    const Armed quiet(Mischief::kNone, -1);
    fs::remove_all(dir);
    write_tree(disk, 0, dir, nullptr);
    State got(0);
    const auto world = self_group();
    const auto loaded = load_latest(dir, got.whole(), *world, {});
    if (!loaded) return 0;
    for (const uint64_t seed : {4, 5, 6}) {
        if (got == State(seed)) return seed;
    }
    return 0;
}

size_t said_at(const Recording& r) {
    for (size_t i = 0; i < r.ops().size(); ++i) {
        if (r.ops()[i].kind == Op::Kind::kSaid) return i;
    }
    return r.ops().size();
}

uint64_t identity(const Disk& disk) {
    std::string text;
    write_tree(disk, 0, ".", &text);
    return xxh3(text);
}

}  // namespace

TEST_CASE("crash states: old or new, exactly, in every state of the disk that a save may leave") {
    const test::TempDir temp;
    const bool full = std::getenv("VTRAIN_TEST_FULL") != nullptr;
    const size_t wanted = full ? 4000 : 80;  // different ones, of each scene
    int64_t all = 0, old = 0, fresh = 0;
    for (const Scene& scene : kScenes) {
        CAPTURE(scene.name);
        const Recording r = record(temp / "run", scene);
        const size_t said = said_at(r);
        REQUIRE(said < r.ops().size());
        std::set<uint64_t> seen;
        for (uint64_t draw = 0; seen.size() < wanted && draw < 40 * wanted; ++draw) {
            CAPTURE(draw);
            // every prefix in turn
            const size_t end = draw % (r.ops().size() + 1);
            const Disk disk = crashed(r, end, draw);
            if (!seen.insert(identity(disk)).second) continue;
            const uint64_t found = found_in(disk, temp / "crashed");
            CHECK((found == 5 || found == 6));
            if (end > said) CHECK(found == 6);
            (found == 6 ? fresh : old) += 1;
            ++all;
        }
        CHECK(seen.size() >= (full ? 800 : 60));
    }
    MESSAGE(all << " states: the old one in " << old << ", the new one in " << fresh);
    CHECK(old > all / 10);
    CHECK(fresh >= 10);  // few: all that counts is synced by then
}

TEST_CASE("crash states: a save without any one of its syncs is found out") {
    const test::TempDir temp;
    const Recording whole = record(temp / "run", kScenes[0]);
    const size_t said = said_at(whole);
    int64_t syncs = 0;
    for (size_t skip = 0; skip < said; ++skip) {
        if (whole.ops()[skip].kind != Op::Kind::kSync) continue;
        CAPTURE(skip);
        ++syncs;
        bool lost = false;
        for (uint64_t draw = 0; draw < 200 && !lost; ++draw) {
            Recording r = whole;
            r.forget(skip);
            // `said` is one op earlier now: the crash comes right after the line
            lost = found_in(crashed(r, said, draw), temp / "crashed") != 6;
        }
        CHECK(lost);
    }
    CHECK(syncs == 4);  // payload, manifest, their folder, the folder of the run
}
