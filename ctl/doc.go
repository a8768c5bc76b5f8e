// Package ctl is the operator's client: it asks the agent of this node and shows the answers.
package ctl
