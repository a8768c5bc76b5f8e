// Command program is a small program with modules.
package main

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

func main() {
	text, err := yaml.JSONToYAML([]byte("{}"))
	fmt.Println(string(text), err)
}
