// Package ctl implements weftctl: it queries the agent of this node or the cluster's API server, and prints the replies.
package ctl
