// A library for LD_PRELOAD that moves the wall clock of a process. The file that RIG_CLOCK names
// begins with the offset in microseconds, an int64_t, which may be changed at any time. It does not
// allocate memory: allocators read the clock before they work.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t zero;
static volatile int64_t *offset = &zero;

__attribute__((constructor)) static void map_offset(void) {
	const char *path = getenv("RIG_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		abort();
	void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (page == MAP_FAILED)
		abort();
	offset = page;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	int failed = (int)syscall(SYS_clock_gettime, id, t);
	if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		int64_t us = (int64_t)t->tv_sec * 1000000 + t->tv_nsec / 1000 + *offset;
		t->tv_sec = us / 1000000;
		t->tv_nsec = us % 1000000 * 1000 + t->tv_nsec % 1000;
	}
	return failed;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	struct timespec now;
	(void)zone;
	int failed = clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return failed;
}

time_t time(time_t *t) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (t)
		*t = now.tv_sec;
	return now.tv_sec;
}
