/* Checks a trace.json as a viewer would read it: every event's members, and that the events of a thread lie
 * inside each other or apart, never across. Fails the test that calls it. */
#ifndef TRACE_CHECK_H
#define TRACE_CHECK_H

typedef struct trace_sums {
    int steps, phases, operators, host, counters, threads;
    double step_us, operator_us, host_us; /* host: of the thread that trains */
} trace_sums;

trace_sums check_trace(const char *path);

#endif
