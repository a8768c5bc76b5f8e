// Package conformance compares weft-vswitch with VPP: their answers over the binary API and their packets.
//
// A case is a sequence of API messages and packets. Its transcript holds every message with every answer, event and captured packet.
// The transcripts of a VPP version are stored in testdata/vpp-VERSION.txt; a run on that VPP (WEFT_VPP=PREFIX) must repeat them, and
// with -record writes them anew. A run on weft-vswitch must equal the transcripts of each stored version, except for the lines in
// testdata/divergences.txt, each with its reason. A divergence that is listed but does not exist fails the test as well.
package conformance
