// Command ratchet measures what makes the product's code hard to read, and compares it with the figures of the last
// commit. No figure may grow.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

const usage = `Usage: ratchet [-write] DIRECTORY

Measures the packages of the module in DIRECTORY, without tests, test packages and generated files. It compares the
figures with those in tools/ratchet/figures.txt of the module, and fails if one is higher. With -write it writes the
file, and -places prints where the figures come from.

`

func main() {
	write := flag.Bool("write", false, "write the figures to the file")
	places := flag.Bool("places", false, "print the places that are counted")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *write, *places); err != nil {
		fmt.Fprintln(os.Stderr, "ratchet:", err)
		os.Exit(1)
	}
}

func run(directory string, write, places bool) error {
	tree, err := load(directory)
	if err != nil {
		return err
	}
	now := tree.measure()
	if places {
		for _, f := range now {
			for _, place := range f.places {
				fmt.Fprintf(os.Stdout, "%s: %s\n", f.name, place)
			}
		}
		return nil
	}
	path := filepath.Join(directory, "tools", "ratchet", "figures.txt")
	if write {
		return os.WriteFile(path, []byte(format(now)), 0o644)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	committed, err := parse(string(content))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fallen, err := compare(committed, now)
	for _, text := range fallen {
		fmt.Fprintln(os.Stdout, "ratchet:", text)
	}
	return err
}
