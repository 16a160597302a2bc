/* The validity page of a Tenure session, for C11. The agent writes into this file until when each hold of the session
 * is valid; a program maps the file, and asks nobody. docs/page.md has the whole contract.
 *
 *     struct tenure_page page;
 *     const char *why = tenure_page_open(&page, path, session, boot_id);       from the answer of POST /v1/register
 *     uint64_t until = why ? 0 : tenure_page_held_until(&page, slot, hold);    from the answer of POST /v1/acquire
 *
 * A child of a fork must not ask: it would see the holds of its parent as its own. POSIX.1-2008 has to be visible, as
 * with -D_POSIX_C_SOURCE=200809L or -std=gnu11. */
#ifndef TENURE_PAGE_H
#define TENURE_PAGE_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TENURE_PAGE_MAGIC "TENUREP1"
#define TENURE_PAGE_VERSION 1u
/* Slots of a page, unless its session asked for another number, and the most that it may ask for. */
#define TENURE_PAGE_SLOTS 63u
#define TENURE_PAGE_SLOTS_MAX 4095u
/* Size of the header and of each slot, bytes; slot i begins at TENURE_PAGE_SLOT_SIZE * (i + 1). */
#define TENURE_PAGE_SLOT_SIZE 64u
/* Offsets in the header, bytes. All numbers are little endian. */
#define TENURE_PAGE_VERSION_AT 8u   /* uint32_t */
#define TENURE_PAGE_SLOTS_AT 12u    /* uint32_t */
#define TENURE_PAGE_SESSION_AT 16u  /* 16 bytes of a uuid, in the order in which they are written */
#define TENURE_PAGE_BOOT_ID_AT 32u  /* the same */
#define TENURE_PAGE_REVISION_AT 48u /* uint64_t; grows with every write to the page */
/* Offsets in a slot, bytes. */
#define TENURE_PAGE_HOLD_AT 0u         /* 16 bytes of a uuid; zeros in a slot that was never used */
#define TENURE_PAGE_TOKEN_AT 16u       /* uint64_t; the fencing token */
#define TENURE_PAGE_VALID_UNTIL_AT 24u /* uint64_t; ns of TENURE_PAGE_CLOCK, 0 when it is not held */
#define TENURE_PAGE_STATE_AT 32u       /* uint32_t; one of these */
enum { TENURE_PAGE_STATE_FREE, TENURE_PAGE_STATE_WAITING, TENURE_PAGE_STATE_HELD, TENURE_PAGE_STATE_JEOPARDY,
       TENURE_PAGE_STATE_RELEASED, TENURE_PAGE_STATE_LOST };

/* A clock that goes on while the machine sleeps. Linux's CLOCK_MONOTONIC does not; Apple's does. */
#ifdef __APPLE__
#define TENURE_PAGE_CLOCK CLOCK_MONOTONIC
#else
#define TENURE_PAGE_CLOCK CLOCK_BOOTTIME
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "pages are little endian, and this processor is not");
/* An atomic load that takes a lock does not see what another process writes. */
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "this processor cannot load a word of 8 bytes at once");

struct tenure_page {
    const unsigned char *bytes;
    size_t length;
    uint32_t slots;
};

/* Now, ns. A clock that fails is the end of time: nothing is held. */
static inline uint64_t tenure_page_now(void) {
    struct timespec now;
    if (clock_gettime(TENURE_PAGE_CLOCK, &now) != 0) return UINT64_MAX;
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The word of 8 bytes at an offset, a multiple of 8, by one load; what is read later is read after it. */
static inline uint64_t tenure_page_load(const struct tenure_page *page, size_t at) {
    return atomic_load_explicit((const _Atomic uint64_t *)(const void *)(page->bytes + at), memory_order_acquire);
}

/* Reads a uuid, as the API writes it, into 16 bytes; false if the text is none. */
static inline bool tenure_page_uuid(unsigned char uuid[16], const char *text) {
    static const char digits[] = "0123456789abcdef";
    for (size_t digit = 0; digit < 32; digit++, text++) {
        if (*text == '-') text++;
        const char *value = memchr(digits, *text, 16);
        if (!value) return false;
        uuid[digit / 2] = (unsigned char)((digit % 2 ? uuid[digit / 2] << 4 : 0) | (value - digits));
    }
    return *text == '\0';
}

static inline void tenure_page_close(struct tenure_page *page) {
    if (page->bytes) munmap((void *)(uintptr_t)page->bytes, page->length);
    memset(page, 0, sizeof *page);
}

/* Maps the page at that path, and checks that it is the session's, of that boot. NULL for the boot is right in a
 * program that `tenure run` has started, which has path and session in its environment. Returns NULL, or why not; only
 * a page that was opened may be asked. */
static inline const char *tenure_page_open(struct tenure_page *page, const char *path, const char *session,
                                           const char *boot_id) {
    const size_t slot_size = TENURE_PAGE_SLOT_SIZE, size_max = slot_size * (TENURE_PAGE_SLOTS_MAX + 1);
    unsigned char uuid[16];
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return "it cannot be opened: is this the user who registered?";
    size_t size = fstat(file, &status) == 0 ? (size_t)status.st_size : 0, length = size < size_max ? size : size_max;
    void *map = length < slot_size ? MAP_FAILED : mmap(NULL, length, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (map == MAP_FAILED) return "it is shorter than a header, or cannot be mapped";
    const unsigned char *head = map;
    uint32_t shape[2];
    memcpy(shape, head + TENURE_PAGE_VERSION_AT, sizeof shape);
    *page = (struct tenure_page){head, length, shape[1]};
    const char *why = NULL;
    if (memcmp(head, TENURE_PAGE_MAGIC, 8) || shape[0] != TENURE_PAGE_VERSION || length / slot_size <= shape[1])
        why = "it has not this layout: is the agent of another version?";
    else if (!tenure_page_uuid(uuid, session) || memcmp(head + TENURE_PAGE_SESSION_AT, uuid, 16) != 0)
        why = "it is not of this session";
    else if (boot_id && (!tenure_page_uuid(uuid, boot_id) || memcmp(head + TENURE_PAGE_BOOT_ID_AT, uuid, 16) != 0))
        why = "it is not of this boot";
    if (why) tenure_page_close(page);
    return why;
}

/* Until when the hold is valid, ns; 0 if it is not held at this instant. Right also when the agent is stopped or dead,
 * and when this program stood still. A hold that was not held once stays so: stop, and acquire again. */
static inline uint64_t tenure_page_held_until(const struct tenure_page *page, uint32_t slot, const unsigned char id[]) {
    if (slot >= page->slots) return 0;
    size_t at = TENURE_PAGE_SLOT_SIZE * ((size_t)slot + 1);
    uint64_t hold[2];
    memcpy(hold, id, sizeof hold);
    /* In this order: a slot changes its owner by valid-until zero, the new hold, its valid-until. A valid-until that is
     * read before the slot is seen to be this hold's can only be this hold's. The clock comes last: a thread that was
     * stopped in between must not compare with an earlier now. */
    uint64_t until = tenure_page_load(page, at + TENURE_PAGE_VALID_UNTIL_AT);
    bool is_its = tenure_page_load(page, at) == hold[0] && tenure_page_load(page, at + 8) == hold[1];
    return is_its && tenure_page_now() < until ? until : 0;
}

/* True if this process reads the agent's clock, as one in another time namespace does not: that one must give the hold
 * back. `asked` is tenure_page_now() of just before POST /v1/acquire; its answer has the other two, valid_ms and
 * valid_until_boottime_ns. */
static inline bool tenure_page_has_clock(uint64_t asked, uint64_t valid_ms, uint64_t valid_until) {
    uint64_t valid = valid_ms * UINT64_C(1000000), latest = tenure_page_now() + valid + UINT64_C(2000000);
    return valid_until <= latest && (valid_ms == 0 || valid_until >= asked + valid);
}

#endif
