// Package cni is the thin CNI plugin: it turns what a runtime says into one call of the agent, and the reply into a result.
package cni
