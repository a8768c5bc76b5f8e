// Package stats serves counters in a stats segment as VPP 25.10 lays it out, so that VPP's clients can read it.
//
// A segment is a memfd that every client maps; clients get its descriptor over a unix socket. It begins with a header that
// points to the directory, a vector of named entries. An entry holds a value, points to a vector of counters for each
// thread, points to a vector of names, or is a link to one element of another entry's vectors. Pointers are addresses in
// the writer's memory: a client subtracts the header's base. The layout is defined by VPP's src/vlib/stats/shared.h and
// src/vppinfra/vec_bootstrap.h.
package stats
