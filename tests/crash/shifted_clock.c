/* Shifts the wall clock of a process by the seconds in the file that FIRN_TEST_CLOCK names. Other
 * clocks, with which leases and timeouts are measured, are those of the system. Loaded before the
 * C library by LD_PRELOAD. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shift_s;

__attribute__((constructor)) static void open_shift(void) {
    const char *path = getenv("FIRN_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) {
        return;
    }
    void *mapped = mmap(NULL, sizeof *shift_s, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) {
        shift_s = mapped;
    }
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && clock == CLOCK_REALTIME && shift_s) {
        time->tv_sec += *shift_s;
    }
    return failed ? -1 : 0;
}
