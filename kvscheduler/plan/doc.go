// Package plan decides which operations make the applied objects equal to the desired ones, and in which order.
//
// A Graph holds the desired and the applied objects. Plan is a pure function of it: no I/O, no clock, no
// goroutine. Transactions, retries, events, drift and rollbacks differ only in the nodes that they ask a plan for. The
// caller executes the operations level by level and notes each outcome in the Graph (Applied, Doubt, Fail, Missing,
// Found).
package plan
