/* Fills and writes the shards: the tensors of all shards are cut into pieces, threads take the next piece, fill it in
 * a buffer of their own and write it where it belongs. The calling thread reports progress and waits. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "model/synth_write.h"

#define PIECE_BYTES ((size_t)4 << 20)
#define MAX_THREADS 16
#define PROGRESS_NS 100000000

typedef struct job {
    /* fixed before the threads start */
    const pgl_synth_plan *plan;
    const int *fds;              /* one a shard */
    const uint64_t *data_begins; /* where a shard's data begins in its file */

    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t tensor;  /* of the next piece */
    uint64_t begin; /* of the next piece in that tensor */
    uint64_t done_bytes;
    uint32_t n_running;
    bool stop;
    int error; /* errno of the first write that failed */
    uint32_t failed_shard;
} job;

/* Takes the next piece; false when there is none or the job stops. */
static bool take(job *j, const pgl_synth_tensor **tensor, uint64_t *begin, size_t *size) {
    pthread_mutex_lock(&j->lock);
    const bool found = !j->stop && j->tensor < j->plan->n_tensors;
    if (found) {
        *tensor = &j->plan->tensors[j->tensor];
        *begin = j->begin;
        const uint64_t left = (*tensor)->bytes - j->begin;
        *size = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        j->begin += *size;
        if (j->begin == (*tensor)->bytes) {
            j->tensor++;
            j->begin = 0;
        }
    }
    pthread_mutex_unlock(&j->lock);
    return found;
}

static void *work(void *context) {
    job *j = context;
    char *buffer = pgl_new_aligned(1, PIECE_BYTES);
    int error = buffer == NULL ? ENOMEM : 0;
    const pgl_synth_tensor *tensor = NULL;
    uint64_t begin;
    size_t size;
    while (error == 0 && take(j, &tensor, &begin, &size)) {
        pgl_synth_fill(tensor, begin, size, buffer);
        const int fd = j->fds[tensor->shard];
        const uint64_t offset = j->data_begins[tensor->shard] + tensor->offset_bytes + begin;
        if (pgl_synth_pwrite(fd, buffer, size, offset) != PGL_OK) {
            error = errno;
        } else {
            /* Start writing to the disk now: it works while the next pieces are made. Not all file systems do. */
            (void)sync_file_range(fd, (off_t)offset, (off_t)size, SYNC_FILE_RANGE_WRITE);
        }
        pthread_mutex_lock(&j->lock);
        j->done_bytes += size;
        pthread_mutex_unlock(&j->lock);
    }
    free(buffer);
    pthread_mutex_lock(&j->lock);
    if (error != 0 && j->error == 0) {
        j->error = error;
        j->failed_shard = tensor == NULL ? 0 : tensor->shard;
        j->stop = true;
    }
    j->n_running--;
    pthread_cond_signal(&j->changed);
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

/* Waits for the threads, with a report now and then; true when the caller cancelled. */
static bool watch(job *j, const pgl_synth_options *options) {
    bool cancelled = false;
    pthread_mutex_lock(&j->lock);
    while (j->n_running > 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += PROGRESS_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&j->changed, &j->lock, &until);
        const uint64_t done = j->done_bytes;
        pthread_mutex_unlock(&j->lock);
        if (options->progress != NULL && !options->progress(options->context, done, j->plan->total_bytes)) {
            cancelled = true;
        }
        pthread_mutex_lock(&j->lock);
        j->stop = j->stop || cancelled;
    }
    pthread_mutex_unlock(&j->lock);
    return cancelled;
}

static pgl_status run_job(job *j, const pgl_synth_options *options, const pgl_synth_files *files,
                          pgl_error *err) {
    pthread_t threads[MAX_THREADS];
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t wanted = options->n_threads != 0 ? options->n_threads : cores > 0 ? (uint32_t)cores : 1;
    wanted = wanted < MAX_THREADS ? wanted : MAX_THREADS;
    uint32_t started = 0;
    j->n_running = wanted;
    while (started < wanted && pthread_create(&threads[started], NULL, work, j) == 0) {
        started++;
    }
    pthread_mutex_lock(&j->lock);
    j->n_running -= wanted - started;
    pthread_mutex_unlock(&j->lock);
    if (started == 0) {
        return pgl_fail(err, PGL_E_MEMORY, "cannot start a thread");
    }
    const bool cancelled = watch(j, options);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    if (j->error != 0) {
        char name[64];
        pgl_synth_shard_name(j->plan, j->failed_shard, name);
        return pgl_fail(err, PGL_E_IO, "%s/%s: cannot write: %s", files->path, name, strerror(j->error));
    }
    return cancelled ? pgl_fail(err, PGL_E_CANCELLED, "cancelled; what was written is removed") : PGL_OK;
}

/* Creates one shard with its header, and reserves its room on the disk. */
static pgl_status begin_shard(const pgl_synth_plan *plan, uint32_t shard, pgl_synth_files *files, int *fd,
                              uint64_t *data_begin, pgl_error *err) {
    char name[64];
    pgl_synth_shard_name(plan, shard, name);
    pgl_buf header = PGL_BUF_INIT;
    pgl_status status = pgl_synth_shard_header(plan, shard, &header, err);
    if (status == PGL_OK) {
        status = pgl_synth_files_create(files, name, fd, err);
    }
    if (status == PGL_OK) {
        unsigned char length[8];
        for (size_t i = 0; i < 8; i++) {
            length[i] = (unsigned char)((uint64_t)header.size >> (8 * i));
        }
        *data_begin = 8 + header.size;
        uint64_t end = *data_begin;
        for (size_t i = 0; i < plan->n_tensors; i++) {
            end += plan->tensors[i].shard == shard ? plan->tensors[i].bytes : 0;
        }
        int error = fallocate(*fd, 0, 0, (off_t)end) == 0 ? 0 : errno;
        if (error == EOPNOTSUPP || error == ENOSYS) {
            error = 0;
        }
        if (error == 0 && (pgl_synth_pwrite(*fd, length, 8, 0) != PGL_OK ||
                           pgl_synth_pwrite(*fd, header.data, header.size, 8) != PGL_OK)) {
            error = errno;
        }
        if (error != 0) {
            status = pgl_fail(err, PGL_E_IO, "%s/%s: cannot write: %s", files->path, name, strerror(error));
        }
    }
    pgl_buf_fini(&header);
    return status;
}

static pgl_status check_room(const pgl_synth_files *files, uint64_t bytes, pgl_error *err) {
    struct statvfs fs;
    if (fstatvfs(files->directory, &fs) != 0) {
        return pgl_fail(err, PGL_E_IO, "%s: cannot ask for free space: %s", files->path, strerror(errno));
    }
    const uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    const uint64_t small_files = (uint64_t)32 << 20;
    if (room < small_files || room - small_files < bytes) {
        return pgl_fail(err, PGL_E_IO, "%s: the checkpoint needs %.2f GB on this disk, %.2f GB are free",
                        files->path, (double)(bytes + small_files) / 1e9, (double)room / 1e9);
    }
    return PGL_OK;
}

pgl_status pgl_synth_write_shards(const pgl_synth_options *options, const pgl_synth_plan *plan,
                                  pgl_synth_files *files, pgl_error *err) {
    pgl_status status = check_room(files, plan->total_bytes, err);
    if (status != PGL_OK) {
        return status;
    }
    int *fds = pgl_new(plan->n_shards, sizeof *fds);
    uint64_t *data_begins = pgl_new(plan->n_shards, sizeof *data_begins);
    if (fds == NULL || data_begins == NULL) {
        free(fds);
        free(data_begins);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for %u shards", plan->n_shards);
    }
    for (uint32_t i = 0; i < plan->n_shards; i++) {
        fds[i] = -1;
    }
    for (uint32_t i = 0; status == PGL_OK && i < plan->n_shards; i++) {
        status = begin_shard(plan, i, files, &fds[i], &data_begins[i], err);
    }
    if (status == PGL_OK) {
        job j = {.plan = plan, .fds = fds, .data_begins = data_begins};
        pthread_mutex_init(&j.lock, NULL);
        pthread_cond_init(&j.changed, NULL);
        status = run_job(&j, options, files, err);
        pthread_cond_destroy(&j.changed);
        pthread_mutex_destroy(&j.lock);
    }
    for (uint32_t i = 0; i < plan->n_shards; i++) {
        if (fds[i] >= 0 && (fdatasync(fds[i]) != 0) + (close(fds[i]) != 0) > 0 && status == PGL_OK) {
            status =
                pgl_fail(err, PGL_E_IO, "%s: cannot write shard %u: %s", files->path, i + 1, strerror(errno));
        }
    }
    free(data_begins);
    free(fds);
    return status;
}
