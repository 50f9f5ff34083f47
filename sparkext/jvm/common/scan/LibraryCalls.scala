package org.apache.spark.sql.sparkext.scan

import java.lang.reflect.{InvocationTargetException, Method, Modifier}

/** Calls members of library classes that this jar is not compiled against and that may be missing.
  *
  * If the version of a library does not have a member, a `NoSuchMethodException` or a `ClassNotFoundException` is
  * thrown.
  */
private object LibraryCalls {

  /** The result of a method with this name that accepts these arguments, whether or not it is public. */
  def call(target: AnyRef, method: String, arguments: AnyRef*): AnyRef = {
    val found = inherited(target.getClass).flatMap(_.getDeclaredMethods).filterNot(member =>
      Modifier.isStatic(member.getModifiers))
    invoked(found, target, method, arguments)
  }

  /** The same for a method of a Scala object. `beside`: an instance of a class of the same library. */
  def callModule(module: String, beside: AnyRef, method: String, arguments: AnyRef*): AnyRef =
    call(loaded(module + "$", beside).getField("MODULE$").get(null), method, arguments: _*)

  /** A new instance of a class of the library to which the class of `beside` belongs. */
  def make(name: String, beside: AnyRef, arguments: AnyRef*): AnyRef = {
    val constructors = loaded(name, beside).getConstructors.filter(maker => accepts(maker.getParameterTypes, arguments))
    if (constructors.isEmpty) throw new NoSuchMethodException(s"$name of ${arguments.length} arguments")
    unwrapped(constructors.head.newInstance(arguments: _*).asInstanceOf[AnyRef])
  }

  private def loaded(name: String, beside: AnyRef): Class[_] = Class.forName(name, true, beside.getClass.getClassLoader)

  private def invoked(methods: Seq[Method], target: AnyRef, name: String, arguments: Seq[AnyRef]): AnyRef = {
    val method = methods.find(member =>
      member.getName == name && !member.isBridge && accepts(member.getParameterTypes, arguments))
      .getOrElse(throw new NoSuchMethodException(s"${target.getClass.getName}.$name of ${arguments.length} arguments"))
    method.setAccessible(true)
    unwrapped(method.invoke(target, arguments: _*))
  }

  private def inherited(found: Class[_]): Seq[Class[_]] =
    Iterator.iterate[Class[_]](found)(_.getSuperclass).takeWhile(_ != null).toSeq.flatMap(one => one +: interfaces(one))

  private def interfaces(found: Class[_]): Seq[Class[_]] =
    found.getInterfaces.toSeq.flatMap(one => one +: interfaces(one))

  private def accepts(parameters: Array[Class[_]], arguments: Seq[AnyRef]): Boolean =
    parameters.length == arguments.length && parameters.zip(arguments).forall { case (parameter, argument) =>
      parameter.isInstance(argument)
    }

  /** Throws the library's own exception, instead of the one for a failed call. */
  private def unwrapped(body: => AnyRef): AnyRef =
    try body
    catch { case failed: InvocationTargetException if failed.getCause != null => throw failed.getCause }
}
