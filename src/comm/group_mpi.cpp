// SPDX-License-Identifier: MIT
// Messages over MPI: start, send, receive, test, end. Floor 1.
#include <array>
#include <unordered_map>

#include <mpi.h>

#include "comm/messages.h"
#include "comm/mpi.h"

namespace vt {

namespace {

void check_mpi(int code, const char* doing) {
    if (code == MPI_SUCCESS) [[likely]]
        return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    raise(Fault::kSystem, fmt::format("MPI: {}: {}", doing, text.data()));
}

class MpiWire final : public Wire {
  public:
    MpiWire() {
        int have = 0, level = 0;
        check_mpi(MPI_Initialized(&have), "is it initialised");
        if (have == 0) {
            check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level),
                      "initialise");
            initialised_ = true;
        } else {
            check_mpi(MPI_Query_thread(&level), "thread level");
        }
        if (level < MPI_THREAD_SERIALIZED) {
            raise(Fault::kSystem,
                  fmt::format("MPI gives thread level {}, but MPI_THREAD_SERIALIZED = {} is needed",
                              level, MPI_THREAD_SERIALIZED));
        }
        check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "duplicate the world");
        check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "set the error handler");
        check_mpi(MPI_Comm_rank(comm_, &rank_), "rank");
        check_mpi(MPI_Comm_size(comm_, &size_), "size");
        int* bound = nullptr;
        int found = 0;
        check_mpi(MPI_Comm_get_attr(comm_, MPI_TAG_UB, static_cast<void*>(&bound), &found), "tags");
        if (found != 0) max_tag_ = *bound;
    }
    ~MpiWire() override {
        if (initialised_) MPI_Finalize();
    }
    MpiWire(const MpiWire&) = delete;
    MpiWire& operator=(const MpiWire&) = delete;
    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }
    [[nodiscard]] int max_tag() const override { return max_tag_; }
    int64_t send(const void* data, int bytes, int to, int tag) override {
        MPI_Request request = MPI_REQUEST_NULL;
        check_mpi(MPI_Isend(data, bytes, MPI_BYTE, to, tag, comm_, &request), "send");
        return keep(request);
    }
    int64_t recv(void* data, int bytes, int from, int tag) override {
        MPI_Request request = MPI_REQUEST_NULL;
        check_mpi(MPI_Irecv(data, bytes, MPI_BYTE, from == kAnyone ? MPI_ANY_SOURCE : from, tag,
                            comm_, &request),
                  "receive");
        return keep(request);
    }
    bool test(int64_t id, int* source) override {
        const auto found = requests_.find(id);
        VT_CHECK(found != requests_.end(), "message {} is over", id);
        int over = 0;
        MPI_Status status;
        check_mpi(MPI_Test(&found->second, &over, &status), "test a message");
        if (over == 0) return false;
        if (source != nullptr) *source = status.MPI_SOURCE;
        requests_.erase(found);
        return true;
    }
    void cancel(int64_t id) override { check_mpi(MPI_Cancel(&requests_.at(id)), "cancel"); }
    void close(bool clean) override {
        if (clean) check_mpi(MPI_Comm_free(&comm_), "free the world");
    }
    void end_all(int exit_code) override { MPI_Abort(comm_, exit_code); }

  private:
    int64_t keep(MPI_Request request) {
        requests_[++last_] = request;
        return last_;
    }
    bool initialised_ = false;
    MPI_Comm comm_ = MPI_COMM_NULL;
    int rank_ = 0;
    int size_ = 1;
    int max_tag_ = 32767;  // what MPI promises
    int64_t last_ = 0;
    std::unordered_map<int64_t, MPI_Request> requests_;
};

}  // namespace

std::unique_ptr<Group> mpi_world(const MpiOptions& options) {
    return message_world(std::make_unique<MpiWire>(), options);
}

}  // namespace vt
