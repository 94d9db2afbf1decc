package etcd_test

import (
	"fmt"

	"github.com/carillon-rt/carillon/runtime/rendezvous/etcd"
)

// A program that uses package node needs no code for it: CARILLON_RENDEZVOUS=etcd://10.0.0.5,10.0.0.6 is enough.
func ExampleParseURL() {
	_, err := etcd.ParseURL("10.0.0.5:2379")
	fmt.Println(err)
	_, err = etcd.ParseURL("etcd://10.0.0.5,10.0.0.6/training")
	fmt.Println(err)
	// Output:
	// want a URL such as etcd://host:2379
	// <nil>
}
