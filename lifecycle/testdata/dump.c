/* Prints what the header answers to every question that its types allow, one answer a line. numbers.h is written by the test:
 * what the enumerators are to be. */
#include <stdio.h>

#include "carillon_lifecycle.h"
#include "carillon_lifecycle.h" /* twice does no harm */
#include "numbers.h"

int main(void) {
  for (unsigned s = 0; s <= UINT8_MAX; s++) {
    const carillon_state_t state = (carillon_state_t)s;
    printf("state %u %s\n", s, carillon_state_name(state));
    for (unsigned c = 0; c <= UINT8_MAX; c++) {
      carillon_state_t next = (carillon_state_t)~state;
      const carillon_code_t code = carillon_lifecycle_next(state, (carillon_call_t)c, &next);
      printf("next %u %u %u %u\n", s, c, (unsigned)next, (unsigned)code);
    }
    for (unsigned e = 0; e <= UINT8_MAX; e++) {
      printf("after %u %u %u\n", s, e, (unsigned)carillon_lifecycle_after(state, (carillon_event_t)e));
    }
  }
  for (unsigned c = 0; c <= UINT8_MAX; c++) {
    printf("call %u %s\n", c, carillon_call_name((carillon_call_t)c));
  }
  for (unsigned e = 0; e <= UINT8_MAX; e++) {
    printf("event %u %s\n", e, carillon_event_name((carillon_event_t)e));
  }
  for (unsigned c = 0; c <= UINT16_MAX; c++) {
    printf("code %u %s %d\n", c, carillon_code_name((carillon_code_t)c), carillon_code_nccl((carillon_code_t)c));
  }
  return 0;
}
