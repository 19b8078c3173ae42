// Command containerd is containerd and its client ctr in one file, told apart by the name that it runs under.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
	"github.com/containerd/containerd/v2/cmd/containerd/command"
	ctr "github.com/containerd/containerd/v2/cmd/ctr/app"
)

func main() {
	name, application := filepath.Base(os.Args[0]), command.App
	if name == "ctr" {
		application = ctr.New
	}
	if err := application().Run(os.Args); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, err)
		os.Exit(1)
	}
}
