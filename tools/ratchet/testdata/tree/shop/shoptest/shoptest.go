// Package shoptest is for tests.
package shoptest

func Undocumented() {}
