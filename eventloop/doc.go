// Package eventloop runs events one at a time through ordered handlers and commits what they ask for as one transaction, or undoes all of it.
//
// An event passes thirteen steps: the first in its caller's goroutine (admit.go),
// the others in the loop's own (flight.go). A handler only builds its [Txn]; what
// it changes in its own memory it concludes or inverts there too.
package eventloop
