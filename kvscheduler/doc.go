// Package kvscheduler keeps the applied objects of a machine equal to the desired ones: it plans, orders, batches,
// undoes and retries operations on typed, dependent objects.
//
// A plan is a pure function of desired and applied values. Transactions, retries, events, drift and rollback differ
// only in which objects they mark dirty: one planner and one executor serve them all. One goroutine, Run, owns the
// state; readers (View, Status, Log, Watch) use published snapshots and never wait for a backend.
package kvscheduler
