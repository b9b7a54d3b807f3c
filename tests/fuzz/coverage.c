/* Where the sanitized build has been: what -fsanitize-coverage=trace-pc calls for each block of it.
 *
 * Loaded before everything else, so that it stands in front of the empty function of the sanitizers' library. One thread
 * is watched, the one that plays inputs. */
#include <stdint.h>

#define PLACES (1u << 16)

static uint8_t been[PLACES];
uint32_t mqcore_fuzz_fresh;     /* grows with each block that was not entered before */

void __sanitizer_cov_trace_pc(void) {
    uint64_t at = (uint64_t)(uintptr_t)__builtin_return_address(0);
    uint8_t *place = &been[(at * 0x9E3779B97F4A7C15u) >> 48];
    if (!*place) {
        *place = 1;
        mqcore_fuzz_fresh++;
    }
}
