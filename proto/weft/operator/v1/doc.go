// Package operatorv1 is the gRPC API of the agent's socket for weftctl and the operator's page.
package operatorv1
