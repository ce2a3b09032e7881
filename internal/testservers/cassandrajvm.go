package testservers

import (
	"os"
	"os/exec"
	"path/filepath"
)

// command is a JVM that starts quickly: its second compiler never pays off in a
// test.
func (c *CassandraServer) command() *exec.Cmd {
	args := []string{"-Xms256m", "-Xmx512m", "-Xss256k", "-XX:TieredStopAtLevel=1", "-XX:+UseG1GC", "-XX:+ExitOnOutOfMemoryError"}
	for _, p := range cassandraExports {
		args = append(args, "--add-exports", p+"=ALL-UNNAMED")
	}
	for _, p := range cassandraOpens {
		args = append(args, "--add-opens", p+"=ALL-UNNAMED")
	}
	// It measures the size of objects on the heap.
	if jamm, _ := filepath.Glob(filepath.Join(filepath.Dir(c.classpath), "jamm-*.jar")); len(jamm) > 0 {
		args = append(args, "-javaagent:"+jamm[0])
	}
	if c.config.FastSchema {
		args = append(args, "-Dcassandra.unsafesystem=true")
	}
	args = append(
		args, "-Djdk.attach.allowAttachSelf=true", "-Dio.netty.tryReflectionSetAccessible=true", "-Djava.awt.headless=true",
		"-Dlogback.configurationFile=file://"+c.conf("logback.xml"), "-Dcassandra.config=file://"+c.conf("cassandra.yaml"),
		"-Dcassandra.storagedir="+c.Dir, "-Dcassandra.logdir="+c.Dir, "-Dcassandra-foreground=yes",
		// Nothing is waited for that a small cluster on loopback does not need.
		"-Dcassandra.superuser_setup_delay_ms=0", "-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.ring_delay_ms=1000",
		"-Dcassandra.consistent.rangemovement=false", "-Dcassandra.shutdown_announce_in_ms=0",
		"-cp", c.conf("")+string(os.PathListSeparator)+c.classpath, "org.apache.cassandra.service.CassandraDaemon",
	)
	return exec.Command("java", args...)
}

// What Java 17 hides and Cassandra uses.
var (
	cassandraExports = []string{
		"java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
		"java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server", "java.sql/java.sql",
	}
	cassandraOpens = []string{
		"java.base/java.io", "java.base/java.lang", "java.base/java.lang.module", "java.base/java.lang.reflect", "java.base/java.net",
		"java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic",
		"java.base/jdk.internal.loader", "java.base/jdk.internal.math", "java.base/jdk.internal.module", "java.base/jdk.internal.ref",
		"java.base/jdk.internal.reflect", "java.base/jdk.internal.util.jar", "java.base/sun.nio.ch",
		"jdk.management/com.sun.management.internal",
	}
)
