// Package api serves VPP's binary API on a unix stream socket, answering from the model.
package api
