/* Says whether a hold is held, and until when: held PAGE SESSION HOLD SLOT. Exit status 0 if it is held, 1 if not, 2 if
 * the page cannot be read. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "../tenure_page.h"

int main(int count, char **arguments) {
    unsigned char hold[16];
    if (count != 5 || !tenure_page_uuid(hold, arguments[3])) {
        fprintf(stderr, "usage: %s PAGE SESSION HOLD SLOT\n", arguments[0]);
        return 2;
    }
    struct tenure_page page;
    const char *why = tenure_page_open(&page, arguments[1], arguments[2], NULL);
    if (why) {
        fprintf(stderr, "%s: %s\n", arguments[1], why);
        return 2;
    }
    uint64_t until = tenure_page_held_until(&page, (uint32_t)strtoul(arguments[4], NULL, 10), hold);
    if (until)
        printf("held until %" PRIu64 "\n", until);
    else
        puts("not held");
    return until ? 0 : 1;
}
