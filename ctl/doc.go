// Package ctl is the operator's client: it asks the agent of this node, or the API server of the cluster, and shows the answers.
package ctl
