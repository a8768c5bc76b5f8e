// Package agent assembles Weft on a node: it is the only room that knows all the others.
//
// handlers.go holds the order in which rooms handle events, commit.go is the bridge from the event loop to the
// scheduler, state.go the file that everything durable lives in, and agent.go the order of start and stop.
package agent
