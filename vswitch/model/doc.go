// Package model is the embedded dataplane's control state: it validates what the binary API asks, answers its dumps with VPP's semantics, and drives the packet path.
package model
