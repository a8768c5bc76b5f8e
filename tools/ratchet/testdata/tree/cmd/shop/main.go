// Command shop is a program.
package main

import (
	"fmt"

	"example.com/tree/shop"
)

func main() {
	fmt.Println(shop.Total([]shop.Cart{}))
}
