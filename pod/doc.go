// Package pod is the vocabulary of a pod on this node: its attachments, and the events about them with what handlers fill in.
package pod
