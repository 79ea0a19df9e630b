// Command etcd is the published etcd server with all of its flags, built from its module for the peer.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
