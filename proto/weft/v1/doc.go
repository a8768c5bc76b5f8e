// Package weftv1 is what crosses the agent's socket: the CNI plugin's calls (RemoteCNI) and the operators' (Operations).
package weftv1

// Protocol is the version of the RemoteCNI contract that this build speaks. An agent serves its own and the one before.
const Protocol = 1
