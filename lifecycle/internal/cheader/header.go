package main

import (
	"fmt"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle"
)

// stay is the cell of a table that is legal and changes no state. It lies above all states and below all errors' codes.
const stay = 99

const top = `/* Code generated from package lifecycle by go generate; DO NOT EDIT. */

/**
 * @file
 * The rules of a communicator's life, for C and C++: the tables of Go's package lifecycle, number for number.
 * table.md shows them to people.
 *
 * A call is what a user does to a communicator; an event is what the runtime makes happen. carillon_lifecycle_next()
 * says what a call leads to, and carillon_lifecycle_after() what an event leads to. Both are pure: the caller keeps
 * the state, and orders concurrent changes of it. On a non-blocking communicator, answer CARILLON_CODE_INITIALIZING
 * as CARILLON_CODE_IN_PROGRESS.
 *
 * Numbers and names are stable. Everything here is constant or inline; nothing is to be linked, and of the standard
 * headers only <stdint.h> is needed.
 */
#ifndef CARILLON_LIFECYCLE_H
#define CARILLON_LIFECYCLE_H

#include <stdint.h>
`

const bottom = `
/**
 * What state a communicator in state is in after call.
 *
 * For a legal call, *next is the new state, which may be the old one, and the answer is CARILLON_CODE_OK. Otherwise
 * *next is state, and the answer is the mistake's code, CARILLON_CODE_INVALID_ARGUMENT for an unknown state or call.
 */
static inline carillon_code_t carillon_lifecycle_next(carillon_state_t state, carillon_call_t call,
                                                      carillon_state_t *next) {
  *next = state;
  if (state >= CARILLON_NUM_STATES || call >= CARILLON_NUM_CALLS) {
    return CARILLON_CODE_INVALID_ARGUMENT;
  }
  const uint16_t cell = carillon_lifecycle_calls[call][state];
  if (cell == CARILLON_LIFECYCLE_STAY) {
    return CARILLON_CODE_OK;
  }
  if (cell < CARILLON_NUM_STATES) {
    *next = (carillon_state_t)cell;
    return CARILLON_CODE_OK;
  }
  return cell;
}

/** What state a communicator in state is in after event. An event that does not concern state leaves it as it is. */
static inline carillon_state_t carillon_lifecycle_after(carillon_state_t state, carillon_event_t event) {
  if (state >= CARILLON_NUM_STATES || event >= CARILLON_NUM_EVENTS) {
    return state;
  }
  const uint16_t cell = carillon_lifecycle_events[event][state];
  return cell < CARILLON_NUM_STATES ? (carillon_state_t)cell : state;
}

/** The state's stable name, "ready"; "unknown" for a state that does not exist. */
static inline const char *carillon_state_name(carillon_state_t state) {
  return state < CARILLON_NUM_STATES ? carillon_state_names[state] : "unknown";
}

/** The call's stable name, "all_reduce"; "unknown" for a call that does not exist. */
static inline const char *carillon_call_name(carillon_call_t call) {
  return call < CARILLON_NUM_CALLS ? carillon_call_names[call] : "unknown";
}

/** The event's stable name, "init_done"; "unknown" for an event that does not exist. */
static inline const char *carillon_event_name(carillon_event_t event) {
  return event < CARILLON_NUM_EVENTS ? carillon_event_names[event] : "unknown";
}

/** The code's stable name, "rank_dead"; "unknown" for a code that does not exist. */
static inline const char *carillon_code_name(carillon_code_t code) {
  for (unsigned i = 0; i < CARILLON_NUM_CODES; i++) {
    if (carillon_codes[i].code == code) {
      return carillon_codes[i].name;
    }
  }
  return "unknown";
}

/** The ncclResult_t that a C program gets for the code; ncclInternalError for a code that does not exist. */
static inline int carillon_code_nccl(carillon_code_t code) {
  for (unsigned i = 0; i < CARILLON_NUM_CODES; i++) {
    if (carillon_codes[i].code == code) {
      return carillon_codes[i].nccl;
    }
  }
  return %d;
}

#endif /* CARILLON_LIFECYCLE_H */
`

func header(n notes) string {
	var (
		b      strings.Builder
		states = lifecycle.States()
		calls  = append([]lifecycle.Call{lifecycle.CallNone}, lifecycle.Calls()...)
		events = append([]lifecycle.Event{lifecycle.EventNone}, lifecycle.Events()...)
		codes  = lifecycle.Codes()
	)
	b.WriteString(top)

	enum(&b, n, "State", "uint8_t", "Where a communicator is in its life.", states)
	enum(&b, n, "Call", "uint8_t", "Something that a user does to a communicator.", calls)
	enum(&b, n, "Event", "uint8_t", "Something that the runtime makes happen to a communicator.", events)
	enum(&b, n, "Code", "uint16_t", "The stable number of an error.", codes)

	b.WriteString("\n/** How many there are. States, calls and events are numbered from 0 without gaps; codes have " +
		"gaps. */\nenum {\n")
	for _, count := range []struct {
		of string
		n  int
	}{{"STATES", len(states)}, {"CALLS", len(calls)}, {"EVENTS", len(events)}, {"CODES", len(codes)}} {
		fmt.Fprintf(&b, "  CARILLON_NUM_%s = %d,\n", count.of, count.n)
	}
	b.WriteString("};\n")

	fmt.Fprintf(&b, "\n/** The cell of a table that is legal and changes no state. A number below is the state to go "+
		"to, one above the code of the error. */\n"+
		"enum { CARILLON_LIFECYCLE_STAY = %d };\n", stay)
	table(&b, "What becomes of a communicator that is in a state (column) when its user makes a call (row).",
		"call", calls,
		func(s lifecycle.State, c lifecycle.Call) int {
			to, code := lifecycle.Next(s, c)
			return cell(s, to, code)
		})
	table(&b, "What becomes of a communicator that is in a state (column) when something happens (row). No event is "+
		"an error.", "event", events,
		func(s lifecycle.State, e lifecycle.Event) int {
			return cell(s, lifecycle.After(s, e), lifecycle.CodeOK)
		})

	names(&b, "state", states)
	names(&b, "call", calls)
	names(&b, "event", events)

	b.WriteString("\n/** What is known of the codes, in order of their numbers. */\n" +
		"static const struct {\n  carillon_code_t code;\n  uint8_t nccl; /**< the ncclResult_t */\n  const char *name;\n} " +
		"carillon_codes[CARILLON_NUM_CODES] = {\n")
	for _, c := range codes {
		fmt.Fprintf(&b, "  {%d, %d, %q},\n", c, c.NCCL(), c)
	}
	b.WriteString("};\n")

	fmt.Fprintf(&b, bottom, lifecycle.CodeInternal.NCCL())
	return b.String()
}

// number is a State, Call, Event or Code.
type number interface {
	~uint8 | ~uint16
	fmt.Stringer
}

// enum writes the numbers of a kind, and the type that holds one. The type is an integer and not the enum, so that a
// number from elsewhere, a tape or a later version, is a value like any other.
func enum[T number](b *strings.Builder, n notes, kind, holder, says string, all []T) {
	tag := "carillon_" + strings.ToLower(kind)
	fmt.Fprintf(b, "\n/** %s */\nenum %s {\n", says, tag)
	for _, v := range all {
		fmt.Fprintf(b, "  %s = %d,", enumerator(kind, v), v)
		if note := n.of(kind, v.String()); note != "" {
			fmt.Fprintf(b, " /**< %s */", note)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "};\n\n/** Holds an enum %s. */\ntypedef %s %s_t;\n", tag, holder, tag)
}

// enumerator is the C name of a number: CARILLON_STATE_READY.
func enumerator[T number](kind string, v T) string {
	return "CARILLON_" + strings.ToUpper(kind) + "_" + strings.ToUpper(v.String())
}

// cell is what stands in a table for the way from one state to another, or for an error.
func cell(from, to lifecycle.State, code lifecycle.Code) int {
	switch {
	case code != lifecycle.CodeOK:
		return int(code)
	case to == from:
		return stay
	default:
		return int(to)
	}
}

func table[T number](b *strings.Builder, says, kind string, rows []T, answer func(lifecycle.State, T) int) {
	width := 0
	for _, row := range rows {
		width = max(width, len(row.String()))
	}
	fmt.Fprintf(b, "\n/** %s */\nstatic const uint16_t carillon_lifecycle_%ss[CARILLON_NUM_%sS][CARILLON_NUM_STATES]"+
		" = {\n", says, kind, strings.ToUpper(kind))
	fmt.Fprintf(b, "  /* %-*s ", width, "state")
	for _, s := range lifecycle.States() {
		fmt.Fprintf(b, "%5d", s)
	}
	b.WriteString(" */\n")
	for _, row := range rows {
		fmt.Fprintf(b, "  /* %-*s */ {", width, row)
		for i, s := range lifecycle.States() {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(b, "%3d", answer(s, row))
		}
		b.WriteString("},\n")
	}
	b.WriteString("};\n")
}

func names[T number](b *strings.Builder, kind string, all []T) {
	fmt.Fprintf(b, "\n/** The %ss' stable names; index is the number. */\nstatic const char *const "+
		"carillon_%s_names[CARILLON_NUM_%sS] = {\n",
		kind, kind, strings.ToUpper(kind))
	for _, v := range all {
		fmt.Fprintf(b, "  %q,\n", v)
	}
	b.WriteString("};\n")
}
