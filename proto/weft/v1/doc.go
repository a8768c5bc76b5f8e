// Package weftv1 is the gRPC API of the agent's socket: RemoteCNI for the CNI plugin and Operations for weftctl.
package weftv1

// Protocol is the version of the RemoteCNI API of this build. An agent serves this version and the previous one.
const Protocol = 1
