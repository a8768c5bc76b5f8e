// Command other is a small program with other modules than program.
package main

import (
	"fmt"

	"golang.org/x/mod/semver"
)

func main() { fmt.Println(semver.IsValid("v1.2.3")) }
