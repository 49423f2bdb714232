"""The local disk of a local Spark session, without the work of Hadoop's own class for it.

Without its native library, Hadoop starts the program ``chmod`` for every file and every directory that it makes on a local disk, and
makes a hidden file of checksums beside each file. A small batch makes about two hundred of them. This class leaves both out: files get
the permissions of the process (umask), as those of any other program. The JVM compiles it with the compiler that Spark has for its
queries.
"""

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("polydomo.pipeline")

NAME = "PolydomoLocalDisk"
SOURCE = f"""
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class {NAME} extends LocalFileSystem {{
    public {NAME}() {{
        super(new RawLocalFileSystem() {{
            public void setPermission(Path path, FsPermission permission) {{}}
        }});
        setWriteChecksum(false);
        setVerifyChecksum(false);
    }}
}}
"""


def use(spark: "SparkSession") -> None:
    """Makes this class the session's local disk."""
    jvm: Any = spark._jvm
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(SOURCE)
        context: Any = spark.sparkContext._jsc
        conf = jvm.org.apache.hadoop.conf.Configuration(context.hadoopConfiguration())
        conf.setClassLoader(compiler.getClassLoader())
        conf.set("fs.file.impl", NAME)
        systems = jvm.org.apache.hadoop.fs.FileSystem
        systems.closeAll()  # those that Hadoop keeps: whoever asks for the local disk from now on gets this one
        systems.get(jvm.java.net.URI.create("file:///"), conf)
    except Exception as error:  # Hadoop's own class does the same, slower
        log.debug("Hadoop's class for local disks stays: %s", error)
