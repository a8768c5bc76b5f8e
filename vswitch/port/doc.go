// Package port opens the machine's ends of dataplane interfaces and moves vectors of frames through them.
package port
