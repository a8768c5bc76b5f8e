// Package vpp realises the desired values of a VPP-like dataplane over its binary API.
//
// A Client owns the connection; Register ties the kinds of package wire to it. Messages are those of govpp's bindings.
// They are matched to requests by their context, so that an answer that comes after its request's deadline is dropped
// and never taken for another's (govpp's own streams hand channels with late answers on to the next stream).
package vpp
