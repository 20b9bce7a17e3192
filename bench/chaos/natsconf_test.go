package main

import (
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// TestNATSConf: the server reads what is written, and it is what it should be.
func TestNATSConf(t *testing.T) {
	for _, c := range []*natsConf{
		{Name: "nats", Dir: "/d", Port: 4001}, {Name: "nats", Dir: "/d", Port: 4001, Rotated: true}, {Name: "nats", Dir: "/d", Port: 4001, Deaf: true},
		{Name: "nats-2", Dir: "/d", Port: 4001, Cluster: 4002, Routes: []string{"nats-route://127.0.0.1:4002", "nats-route://127.0.0.1:4003"}},
	} {
		if err := c.write(t.TempDir()); err != nil {
			t.Fatal(err)
		}
		o, err := server.ProcessConfigFile(c.path)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if o.Host != "127.0.0.1" || o.Port != 4001 || o.ServerName != c.Name || !o.JetStream || o.StoreDir != "/d" || !o.SyncAlways || o.MaxPayload != 8<<20 {
			t.Errorf("%+v: %+v", c, o)
		}
		if len(o.Routes) != len(c.Routes) || o.Cluster.Port != c.Cluster {
			t.Errorf("%+v: routes %v, cluster at %d", c, o.Routes, o.Cluster.Port)
		}
		for _, u := range o.Users {
			rotated := c.Rotated && u.Username == userDuly
			if (u.Password != u.Username) != rotated {
				t.Errorf("%+v: user %s has the password %s", c, u.Username, u.Password)
			}
			if deaf := u.Permissions != nil && slices.Equal(u.Permissions.Subscribe.Deny, []string{"duly" + ".do.>", "duly" + ".batch.do.>"}); deaf != (c.Deaf && u.Username == userAgents) {
				t.Errorf("%+v: user %s is deaf: %v", c, u.Username, deaf)
			}
		}
		if len(o.Users) != 3 {
			t.Errorf("users %+v", o.Users)
		}
	}
	if got := as(userDuly, "a:1", "b:2"); got != "nats://duly:duly@a:1,nats://duly:duly@b:2" {
		t.Errorf("%q", got)
	}
}
