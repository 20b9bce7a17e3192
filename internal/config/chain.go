package config

import "errors"

// Chained is the proof of the journal.
type Chained struct {
	Chain    bool   `name:"chain" env:"DULY_CHAIN" help:"Keep a hash chain of each partition's commits, by which duly verify finds what was changed in the database. Set it on all nodes with the scheduler role, or on none."`
	ChainKey string `name:"chain-key" env:"DULY_CHAIN_KEY" help:"File with the Ed25519 key (PEM, PKCS 8) that signs the heads of the chains. Empty: they are not signed."`
}

func (c *Chained) validate() error {
	if c.ChainKey != "" && !c.Chain {
		return errors.New("chain-key: given, but chain is not set: there is nothing to sign")
	}
	return nil
}
